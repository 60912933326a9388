"""The report on a package: all that `mycc explain` knows, as JSON values. docs/schemas/explain-1.json is its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...runtime.archive import Archive
from ...runtime.inspect import inspect_package
from ...runtime.launches import typical_sizes
from ...runtime.tensorfile import parse_header
from .code import Code, read_code
from .kernels import kernel_rows
from .memory import memory_of
from .sources import Sources

__all__ = ["SCHEMA", "report"]

SCHEMA = "mycc.explain/1"
_TARGET = ("target", "isa", "family", "chip", "glibc", "library_size", "roof")


def report(
    path: Path,
    folders: Sequence[Path] = (),
    measured: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """All about a package.

    Args:
        path: the package.
        folders: where the model's source files are looked for, beside the package's own and the current one.
        measured: what runtime.measure.bench_package(kernels=True) gave for it.
        sizes: values of dynamic sizes at which formulas are evaluated; what is left out is as measured, as verified, or
            64 within its range.

    Returns:
        The object that docs/schemas/explain-1.json describes.

    Raises:
        LoadError: not a whole package of a known version.
    """
    archive = Archive(path)
    facts = inspect_package(path)
    code = read_code(archive)
    model = json.loads(code.model) if code.model else {"files": [], "entries": {}, "options": {}}
    wanted = {**_verified(facts), **(measured or {}).get("sizes", {}), **(sizes or {})}
    entries = [
        _entry({**row, "position": i}, facts, model["entries"].get(row["name"]), code, wanted, measured)
        for i, row in enumerate(facts["entry_points"])
    ]
    return {
        "schema": SCHEMA,
        "package": _package(facts, model),
        "entry_points": entries,
        "sources": Sources(model["files"], [path.absolute().parent, Path.cwd(), *folders]).rows(entries),
        "code": code.rows(),
        "weights": _weights(archive),
        "members": facts["members"],
        "measured": None if measured is None else {k: v for k, v in measured.items() if k not in ("kernels", "path")},
    }


def _verified(facts: Mapping[str, Any]) -> dict[str, int]:
    """The sizes at which the package was verified first: those of the examples."""
    shapes = facts["check"].get("shapes") or [{}]
    return dict(shapes[0]) if isinstance(shapes, list) and isinstance(shapes[0], dict) else {}


def _package(facts: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    check = facts["check"]
    return {
        "name": facts["name"],
        "size": facts["size"],
        "weights": facts["weights"],
        "other": facts["other"],
        "versions": facts["versions"],
        "targets": [{key: row[key] for key in _TARGET if key in row} for row in facts["targets"]],
        "python": facts["python"],
        "options": model["options"],
        "certificate": {key: check.get(key) for key in ("error", "eager", "shapes")} if check else None,
        "tuning": facts["tuning"],
        "state": facts["state"],
        "quantization": facts.get("quantization"),
    }


def _entry(
    row: Mapping[str, Any],
    facts: Mapping[str, Any],
    graph: Mapping[str, Any] | None,
    code: Code,
    wanted: Mapping[str, int],
    measured: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """An entry point: its interface, its graph, and for each target kernels and memory."""
    values = typical_sizes(row, wanted)
    targets = {}
    for target in facts["targets"]:
        name = target["target"]
        schedule = _schedule(graph, name)
        times = _times(measured, row["name"], name)
        targets[name] = {
            "kernels": kernel_rows(row, target, schedule, code, values, times),
            "memory": memory_of(row, schedule, values),
        }
    return {
        "name": row["name"],
        "signature": row["signature"],
        "inputs": row["inputs"],
        "outputs": row["outputs"],
        "symbols": [{key: s[key] for key in ("name", "min", "max")} for s in row["symbols"]],
        "sizes": values,
        "variant_of": row.get("variant_of"),
        "graph": None if graph is None else {key: graph[key] for key in ("nodes", "modules", "results")},
        "targets": targets,
        "fusions": row["fusions"],
    }


def _times(measured: Mapping[str, Any] | None, entry: str, target: str) -> Sequence[Mapping[str, Any]] | None:
    """The measured kernels, where they are this entry point's (or its variant's) on this target."""
    if not measured or measured["target"] != target or measured.get("variant", measured["entry"]) != entry:
        return None
    times: Sequence[Mapping[str, Any]] = measured["kernels"]
    return times


def _schedule(graph: Mapping[str, Any] | None, target: str) -> Mapping[str, Any] | None:
    rows = [] if graph is None else graph["schedules"]
    return next((row for row in rows if target in row["targets"]), None)


def _weights(archive: Archive) -> list[dict[str, Any]]:
    """Every tensor of the package, the largest first."""
    entries, _, _ = parse_header(archive.read(archive.manifest["weights"]["member"]))
    rows = [{"name": e.name, "dtype": e.dtype, "shape": list(e.shape), "bytes": e.end - e.begin} for e in entries]
    return sorted(rows, key=lambda row: -row["bytes"])
