"""Software pipelining across samples: the statistics of one sample are reduced while the previous one is normalised.

for i:  for p:  part[i, p] = reduce of x[i, p, :]        for step:  for p:  y[step - 1, p, :] = f(x[step - 1, p, :], s)
for i:  s[i] = reduce of part[i, :]               ->                        part[p] = reduce of x[step, p, :]
for i:  for p:  y[i, p, :] = f(x[i, p, :], s[i])                  s = reduce of part[:]

The sample that is normalised is still in the caches, and memory is read and written at the same time. The parts p are
those of algebra/blocked_variance.py; both samples advance part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import (
    Var,
    as_index,
    of,
    product,
)
from ...ir.nodes import Map, Reduce
from ...ir.program import AnyNode
from ...ir.rewrite import with_loops
from ...machine.cpu import BEYOND_L3, L2, L3_SHARE
from ...machine.cpu_loops import TASKS
from ..cost.estimates import number
from ..fusion.invert import digits
from ..fusion.rows import merge_rows, stays_in_place
from ..graph import NodeGraph, label
from ..remarks import Remarks
from .collapse import collapse

#: bytes of a sample's statistics, which stay beside it in the second level cache
STATISTICS = L2

Stage = Map | Reduce


@dataclass(frozen=True)
class _Norm:
    """Nodes that reduce pieces of samples, those that make statistics of that, and the map that reads both."""

    walkers: tuple[Reduce, ...]
    between: tuple[Stage, ...]
    last: Map

    @property
    def nodes(self) -> tuple[Stage, ...]:
        return (*self.walkers, *self.between, self.last)


def pipeline_samples(graph: NodeGraph, remarks: Remarks) -> None:
    """Makes one kernel of the norm of many samples, where its statistics are reduced in pieces."""
    for node in list(graph.nodes):
        norm = _norm_of(graph, node) if isinstance(node, Map) else None
        stages = _stages(norm) if norm is not None else None
        if norm is None or stages is None:
            continue
        for member in norm.nodes[1:]:
            remarks.fused(label(norm.nodes[0]), label(member), "one kernel over the samples")
        walk = stages[0].dims[1]
        nest = merge_rows(graph, list(zip(norm.nodes, stages, strict=True)), stages[0].dims[:1], STATISTICS)
        graph.replace(nest, replace(nest, pipeline_stages=(*(0 for _ in stages[1:]), 1), walk=walk))


def walks_beside(load: Load, sample: Var) -> bool:
    """Whether a load is of one of many samples, which fit a cache by twos and not all together."""
    size, many = number(load.buffer.size) * DTYPES[load.buffer.dtype].size, sample.extent.constant or 0
    return _of_sample(load, sample) and many >= TASKS.reductions and BEYOND_L3 <= size <= L3_SHARE * many


def _norm_of(graph: NodeGraph, last: Map) -> _Norm | None:
    """The norm that ends in this map; None: it is something else, or one kernel of it costs more than it saves."""
    makers, reductions = statistics_for(graph, last)
    walkers = tuple(m for m in reductions if isinstance(m, Reduce))
    others = tuple(m for m in makers if m not in walkers)
    if not walkers:
        return None
    return _Norm(walkers, others, last) if _in_step(walkers, others, last) else None


def statistics_for(graph: NodeGraph, last: Map) -> tuple[list[Stage], list[Stage]]:
    """What makes statistics of the many samples that a map goes through, and which of that reads them as the map does;
    nothing where it is asked for by others."""
    large = {ld.buffer for e in last.expressions() for ld in e.loads if last.dims and walks_beside(ld, last.dims[0])}
    makers = _makers(graph, last) if large and len(last.dims) >= 2 else []
    if not makers or not _stand_alone(graph, makers, last):
        return [], []
    return makers, [m for m in makers if large & set(m.reads())]


def _stand_alone(graph: NodeGraph, makers: Sequence[Stage], last: Map) -> bool:
    """Whether nobody else reads what the makers make, all for their own sample alone, and all may run at the end."""
    inside: set[AnyNode] = {*makers, last}
    made = [b for m in makers for b in m.writes()]
    alone = all(r in inside and _by_sample(r, b) for b in made for r in graph.readers(b))
    return alone and stays_in_place(graph, inside)


def _in_step(walkers: Sequence[Reduce], others: Sequence[Stage], last: Map) -> bool:
    """Whether the walkers go from piece to piece together: each asks for results of its own piece alone, and nobody
    else's, and the map for those of whole samples."""
    made = {s.buffer: s.index for w in walkers for s in w.stores}
    ends = {b for m in others for b in m.writes()}
    alike = all(len(w.dims) >= 2 and w.dims[:2] == walkers[0].dims[:2] for w in walkers)
    loads = [load for w in walkers for e in w.expressions() for load in e.loads]
    own = all(load.index == made.get(load.buffer, load.index) and load.buffer not in ends for load in loads)
    return alike and own and made.keys().isdisjoint(last.reads())


def _makers(graph: NodeGraph, last: Map) -> list[Stage]:
    """The nodes that make statistics of each sample for the map, in their order."""
    found: set[Stage] = set()
    asking: list[Stage] = [last]
    while asking:
        node = asking.pop()
        for buffer in node.reads():
            maker = graph.producer(buffer)
            if isinstance(maker, Map | Reduce) and maker not in found and _makes_statistics(maker, node, last.dims[0]):
                found.add(maker)
                asking.append(maker)
    return sorted(found, key=graph.position)


def _makes_statistics(maker: Stage, reader: Stage, sample: Var) -> bool:
    """Whether the maker's results are few for each sample, and the reader has those of its own sample alone."""
    if not maker.dims or maker.dims[0].extent != sample.extent or reader.dims[0].extent != sample.extent:
        return False
    for store in maker.stores:
        order, size = digits(store, maker.dims), number(store.buffer.size) / number(sample.extent)
        slowest = order is not None and order[0][0] == maker.dims[0]
        if store.buffer.kind != "temp" or not slowest or size * DTYPES[store.buffer.dtype].size > STATISTICS:
            return False
    return all(_by_sample(reader, b) for b in maker.writes())


def _by_sample(node: AnyNode, buffer: Buffer) -> bool:
    """Whether the node reads of the buffer what belongs to the sample that its first loop is at, and nothing else."""
    loads = [load for e in node.expressions() for load in e.loads if load.buffer is buffer]
    return all(_of_sample(load, node.dims[0]) and _within(load, node.dims[0]) for load in loads)


def _within(load: Load, sample: Var) -> bool:
    """Whether an index stays inside of its sample, even where a choice leaves its value out."""
    place, each = load.index.without(sample), load.index.coefficient(sample)
    return each is not None and place.nonnegative() and (each - place - 1).nonnegative()


def _of_sample(load: Load, sample: Var) -> bool:
    step = load.index.coefficient(sample)
    return step is not None and step * sample.extent == load.buffer.size


def _stages(norm: _Norm) -> list[Stage] | None:
    """The nodes under one name for the sample, the map with the loops of the pieces; None: it has no such loops."""
    sample, piece = norm.walkers[0].dims[:2]
    (*_, all_of_piece) = norm.walkers
    size, channels = product(v.extent for v in all_of_piece.rdims), len(all_of_piece.dims) > 2
    last = collapse(norm.last, keep=1, spare=1 if channels else 0)
    if len(last.dims) != (3 if channels else 2) or last.dims[1].extent != piece.extent * size:
        return None
    place = Var(f"{last.dims[1].name}_in", as_index(size))
    cut = with_loops(last, {last.dims[1]: of(piece) * size + of(place)}, (last.dims[0], piece, place, *last.dims[2:]))
    nodes: Sequence[Stage] = (*norm.walkers, *norm.between, cut)
    return [with_loops(n, {n.dims[0]: of(sample)}, (sample, *n.dims[1:])) for n in nodes]
