"""src/model.json: the graph that a package's kernels come from, for `mycc explain` (docs/explain.md has the fields).

It names operators, modules and lines of the model, and holds no text of the user's files: of those it keeps the name
and the hash, so that a reader knows whether a file still is the one that was compiled.
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import fx

from ..ir.plans.text import plan_text
from ..ir.printer import print_node
from ..model.graph import ModelGraph, type_printer
from ..model.source_lines import is_user_file, modules_of, origin
from ..schedule import Schedule

if TYPE_CHECKING:
    from ..options import CompileOptions

__all__ = ["MEMBER", "model_facts"]

VERSION = 1
MEMBER = "model.json"
_LIBRARIES = tuple({sysconfig.get_paths()[key].rstrip("/") + "/" for key in ("purelib", "platlib", "stdlib")})
_LONGEST = 600  # characters of a kernel's loops that are kept


def model_facts(
    graphs: Sequence[ModelGraph], schedules: Mapping[str, Sequence[Schedule]], options: CompileOptions
) -> str:
    """The member as text.

    Args:
        graphs: the entry points behind the graph passes.
        schedules: by target, one for each entry point.
    """
    files = _Files()
    entries = {
        graph.name: _entry(graph, {target: of[i] for target, of in schedules.items()}, files)
        for i, graph in enumerate(graphs)
    }
    facts = {"version": VERSION, "options": options.changed(), "files": files.rows(), "entries": entries}
    return json.dumps(facts, separators=(",", ":"), allow_nan=False, default=str)


class _Files:
    """The source files that nodes come from, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, file: str) -> int:
        return self._numbers.setdefault(file, len(self._numbers))

    def rows(self) -> list[dict[str, Any]]:
        return [_file_row(Path(file)) for file in self._numbers]


def _file_row(path: Path) -> dict[str, Any]:
    """name: without its folder; of a library's file behind that of the libraries ("transformers/models/...")."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # a notebook's cell, say
        digest = ""
    own = is_user_file(str(path))
    place = next((str(path).removeprefix(d) for d in _LIBRARIES if str(path).startswith(d)), path.name)
    return {"name": path.name if own else place, "user": own, "sha256": digest}


def _entry(graph: ModelGraph, schedules: Mapping[str, Schedule], files: _Files) -> dict[str, Any]:
    modules: dict[str, str] = {}
    nodes = [row for g in _graphs(graph) for row in _nodes(g, files, modules)]
    distinct = {id(schedule): schedule for schedule in schedules.values()}
    return {
        "nodes": nodes,
        "modules": modules,
        "results": [n.name for n in graph.module.graph.output_node().all_input_nodes],
        "schedules": [
            {"targets": [name for name, other in schedules.items() if other is schedule], **_schedule(schedule)}
            for schedule in distinct.values()
        ],
    }


def _schedule(schedule: Schedule) -> dict[str, Any]:
    """kernels in order: nodes of the graph, loops and plan as text. buffers: see _buffers. over: name of a result that
    lies in the memory of an operand -> that operand's."""
    pairs = zip(schedule.program.nodes, schedule.plans, strict=True)
    return {
        "kernels": [
            {"nodes": list(node.origin.nodes), "loops": print_node(node, "")[:_LONGEST], "plan": plan_text(plan)}
            for node, plan in pairs
        ],
        "buffers": _buffers(schedule),
        "over": {b.name: under.name for b, under in schedule.memory.over.items()},
    }


def _graphs(graph: ModelGraph) -> Iterator[ModelGraph]:
    """The graph, and the bodies of its control flow."""
    yield graph
    for region in graph.regions.values():
        yield from _graphs(region)


def _nodes(graph: ModelGraph, files: _Files, modules: dict[str, str]) -> Iterator[dict[str, Any]]:
    text = type_printer(graph)
    for node in graph.module.graph.nodes:
        if node.op != "output":
            for path, kind in modules_of(node):
                modules[path] = kind  # the model itself comes behind the wrapper that capture puts around it
            yield _node(node, text(node.meta.get("val")), files)


def _node(node: fx.Node, kind: str, files: _Files) -> dict[str, Any]:
    """name, op ("aten.linear", "input" or "weight"), type, module, inputs; places: [file, line] of the user's own line,
    and of the library's inside the model where that is another."""
    op = {"placeholder": "input", "get_attr": "weight"}.get(node.op, str(node.target).removesuffix(".default"))
    stack, where = modules_of(node), origin(node)
    row: dict[str, Any] = {"name": node.name, "op": op, "type": kind, "module": stack[-1][0] if stack else ""}
    row["inputs"] = [n.name for n in node.all_input_nodes]
    if where is not None and where.file:
        row["places"] = [[files.number(where.file), where.line]]
        if where.inner is not None:
            row["places"].append([files.number(where.inner.file), where.inner.line])
    return row


def _buffers(schedule: Schedule) -> list[dict[str, Any]]:
    """Temporaries: bytes (a formula over the sizes), the first and the last kernel that uses each, offset in the arena
    where sizes are numbers."""
    memory = schedule.memory
    return [
        {"name": t.buffer.name, "dtype": t.buffer.dtype, "bytes": str(t.bytes), "first": t.first, "last": t.last}
        | ({} if memory.offsets is None else {"offset": memory.offsets[i]})
        for i, t in enumerate(memory.lifetimes)
    ]
