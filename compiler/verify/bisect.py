"""Which stage, and which kernel, makes a package wrong?

Every intermediate tensor that the package leaves in memory is compared with the node of the graph that it is the value
of, computed in float64:

    captured graph  ->  after each graph pass  ->  kernel 0, 1, 2, ... of the package's own run
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from ...runtime.archive import Archive
from ...runtime.errors import CompileError
from ..graph.passes import PassReport, run_graph_passes
from ..ir.buffers import Buffer
from ..ir.dtypes import DTYPES, to_torch
from ..ir.program import AnyNode
from ..lower import lower, shared_layouts
from ..lower.core.tensor import Tensor
from ..model.graph import ModelGraph
from ..model.operators.kept import kept_for
from ..options import CompileOptions
from ..schedule import Schedule, schedule
from ..schedule.report import kernel_rows
from .compare import error
from .interpreter import call_torch, run_graph
from .python_host import Buffers, run_entry
from .reference import reference, reference_call, widened

__all__ = ["Finding", "find_fault"]

#: an intermediate may be this much further from float64 than eager's, before its kernel is called wrong
FACTOR, FLOOR = 8.0, 2e-6


@dataclass(frozen=True)
class Finding:
    """The first thing that differs from the captured graph.

    Attributes:
        stage: "graph" (a pass), "kernel", or "" when every intermediate that can be seen is right.
        name: of the pass or kernel.
        number: of the kernel.
        node: the graph node whose value is wrong.
        lines: of the user's model.
        error, eager: relative errors of the value in the package and in eager.
        unseen: numbers of the kernels before it whose results stay inside of them or have no node: not compared.
        seen: how many kernels were compared.
        graph: the graph after all passes, which `node` belongs to.
        values: node -> value in eager's dtypes: inputs for a reproducer.
        sources: nodes whose values the kernel reads.
    """

    stage: str
    name: str = ""
    number: int = -1
    node: str = ""
    lines: tuple[str, ...] = ()
    error: float = 0.0
    eager: float = 0.0
    unseen: tuple[int, ...] = ()
    seen: int = 0
    graph: ModelGraph | None = None
    values: Mapping[str, torch.Tensor] | None = None
    sources: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.stage:
            return f"no fault found: {self.seen} kernels compared, each as right as eager torch"
        if self.stage == "graph":
            return f"graph pass '{self.name}' changes the results: error {self.error:.1e}"
        lines = ", ".join(self.lines) or "no line known"
        text = (
            f"kernel {self.number} '{self.name}' ({lines}): its result '{self.node}' has error {self.error:.1e}, "
            f"eager's {self.eager:.1e}; {self.seen} kernels before it are right"
        )
        if self.unseen:
            text += f", {len(self.unseen)} were not compared ({', '.join(map(str, self.unseen))})"
        return text


def find_fault(
    captured: ModelGraph, archive: Archive, index: int, inputs: Sequence[torch.Tensor], options: CompileOptions
) -> Finding:
    """The first pass or kernel whose results are not those of the captured graph.

    Args:
        captured: entry point `index` of the package, captured anew.
        inputs: of one run, in the model's dtypes.
        options: those that the package was compiled with.

    Raises:
        CompileError: the package was not made from this model with these options.
    """
    graph, fault = _passes(captured, inputs, options)
    if fault is not None:
        return fault
    target = next((row for row in archive.manifest["targets"] if row.get("family", "cpu") == "cpu"), None)
    if target is None:
        raise CompileError("looking for the first wrong kernel needs the package's code for a CPU, which it has not")
    lowered = lower(graph, shared_layouts([graph], "cpu")[0], "cpu", options.codegen.winograd)
    scheduled = schedule(lowered.program, options.schedule)
    _check_same(archive.manifest["entry_points"][index], scheduled)
    symbols = {s.name: (inputs[s.input].shape[s.dim] - s.offset) // s.scale for s in graph.symbols}
    wide, own = _values(graph, inputs_of(graph, inputs))
    sizes = [own[name].numel() * own[name].element_size() for name in _results(graph)]
    lost = _written_over(scheduled).values()
    buffers = run_entry(archive, target, index, inputs, list(symbols.values()), sizes, before=set(lost))
    return _first_wrong(graph, scheduled, lowered.places, buffers, symbols, wide, own)


def _results(graph: ModelGraph) -> list[str]:
    results: Any = graph.module.graph.output_node().args[0]
    return [str(node.name) for node in results]


# -- graph passes -----------------------------------------------------------------------------------------------------


def _passes(
    captured: ModelGraph, inputs: Sequence[torch.Tensor], options: CompileOptions
) -> tuple[ModelGraph, Finding | None]:
    """The graph after all passes, and the first pass that changes its outputs."""
    wanted = [real(t) for t in reference(captured, inputs)]
    found: list[Finding] = []

    def off(graph: ModelGraph) -> float:
        results = reference(graph, inputs_of(graph, inputs))
        return max((error(real(y), r) for y, r in zip(results, wanted, strict=True)), default=0.0)

    def compare(report: PassReport, graph: ModelGraph) -> None:
        if not found and report.counts and (worst := off(graph)) > FLOOR:
            found.append(Finding("graph", report.name, error=worst))

    kept, skip = kept_for(options.families), options.graph.skipped_passes
    graph = run_graph_passes(captured, kept=kept, skip=skip)
    if off(graph) > FLOOR:
        run_graph_passes(captured, compare, kept, skip)
    return graph, found[0] if found else None


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as its parts, in a last dimension of 2."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def inputs_of(graph: ModelGraph, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs as the graph's placeholders have them: behind the pass for complex numbers, their parts."""
    placeholders = graph.module.graph.find_nodes(op="placeholder")
    return [x if n.meta["val"].is_complex() else real(x) for n, x in zip(placeholders, inputs, strict=True)]


# -- kernels ----------------------------------------------------------------------------------------------------------


def _check_same(row: Mapping[str, Any], scheduled: Schedule) -> None:
    """That the package's kernels are those of this schedule."""
    own = kernel_rows(scheduled, scheduled.names)
    packed = row["kernels"]
    if [r["key"] for r in own] != [r["key"] for r in packed] or [r["ops"] for r in own] != [r["ops"] for r in packed]:
        raise CompileError(
            "the package's kernels are not those that this model gives now",
            hint="Name the source and the options that it was compiled with, or compile it again with this mycc.",
        )


Values = dict[str, torch.Tensor]


def _values(graph: ModelGraph, inputs: Sequence[torch.Tensor]) -> tuple[Values, Values]:
    """Every node's tensor, in float64 and in its own dtype."""
    wide: Values = {}
    own: Values = {}

    def keep(into: Values, call: Any) -> Any:
        def run(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = call(node, args, kwargs)
            if isinstance(result, torch.Tensor):
                into[node.name] = result
            return result

        return run

    placeholders = graph.module.graph.find_nodes(op="placeholder")
    own.update({node.name: x for node, x in zip(placeholders, inputs, strict=True)})
    own.update({n.name: graph.constants[str(n.target)] for n in graph.module.graph.find_nodes(op="get_attr")})
    run_graph(graph.module.graph, inputs, graph.constants.__getitem__, keep(own, call_torch))
    run_graph(
        graph.module.graph, [widened(t) for t in inputs], lambda name: widened(graph.constants[name]),
        keep(wide, reference_call),
    )  # fmt: skip
    return wide, own


def _first_wrong(
    graph: ModelGraph,
    scheduled: Schedule,
    places: Mapping[str, Tensor],
    buffers: Buffers,
    symbols: Mapping[str, int],
    wide: Values,
    own: Values,
) -> Finding:
    memory = _memory(scheduled, buffers)
    nodes = _nodes_by_buffer(places, wide)
    unseen: list[int] = []
    seen = 0
    for number, kernel in enumerate(scheduled.program.nodes):
        written = [(b, name) for b in kernel.writes() for name in nodes.get(b, ())]
        if not written:
            unseen.append(number)
            continue
        for buffer, name in written:
            found = _read(places[name], memory[buffer], symbols)
            off, eager = error(found, wide[name]), error(own[name], wide[name])
            if not off <= FACTOR * eager + FLOOR:
                return Finding(
                    "kernel", scheduled.names[number], number, name, kernel.origin.lines, off, eager, tuple(unseen),
                    seen, graph, own, _sources(kernel, nodes),
                )  # fmt: skip
        seen += 1
    return Finding("", unseen=tuple(unseen), seen=seen)


def _memory(scheduled: Schedule, buffers: Buffers) -> dict[Buffer, np.ndarray]:
    memory = scheduled.memory
    rows = {t.buffer: data for t, data in zip(memory.lifetimes, buffers.arena, strict=True)}
    rows |= {buffer: rows[under] for buffer, under in memory.over.items()}
    rows |= {buffer: buffers.before[place] for buffer, place in _written_over(scheduled).items()}
    return rows | dict(zip(scheduled.program.outputs, buffers.outputs, strict=True))


def _written_over(scheduled: Schedule) -> dict[Buffer, tuple[int, int]]:
    """Buffers that another result is stored over: by which kernel, and in which memory."""
    memory = scheduled.memory
    holder: dict[int, Buffer] = {}
    found: dict[Buffer, tuple[int, int]] = {}
    shared = {*memory.over, *memory.over.values()}
    for number, kernel in enumerate(scheduled.program.nodes):
        for buffer in kernel.writes():
            if buffer not in shared:
                continue
            slot = memory.slot(buffer)
            before = holder.get(slot)
            if before is not None and before is not buffer:
                found[before] = (number, slot)
            holder[slot] = buffer
    return found


def _nodes_by_buffer(places: Mapping[str, Tensor], known: Collection[str]) -> dict[Buffer, list[str]]:
    """The graph nodes whose value lies in a buffer."""
    found: dict[Buffer, list[str]] = {}
    for name, tensor in places.items():
        if tensor.strided is not None and name in known:
            found.setdefault(tensor.strided.buffer, []).append(name)
    return found


def _read(place: Tensor, data: np.ndarray, symbols: Mapping[str, int]) -> torch.Tensor:
    """The tensor at a place of the run's memory."""
    assert place.strided is not None
    size = DTYPES[place.dtype].size
    flat = torch.from_numpy(data[: data.size // size * size].copy()).view(to_torch(place.dtype))
    shape, strides = ([i.evaluate(symbols) for i in indices] for indices in (place.shape, place.strided.strides))
    return flat.as_strided(shape, strides, place.strided.offset.evaluate(symbols))


def _sources(kernel: AnyNode, nodes: Mapping[Buffer, list[str]]) -> tuple[str, ...]:
    """Graph nodes whose values the kernel reads from memory."""
    return tuple(name for buffer in kernel.reads() for name in nodes.get(buffer, ()))
