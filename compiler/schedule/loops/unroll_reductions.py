"""Full unrolling: reductions over a few elements, and the maps over the same elements, become one map.

for i:  s[i] = sum_k exp(x[i, k])    k:3             for i:  s = exp(x[i, 0]) + exp(x[i, 1]) + exp(x[i, 2])
for i, k:  y[i, k] = exp(x[i, k]) / s[i]      ->             y[i, 0] = exp(x[i, 0]) / s
                                                             y[i, 1] = exp(x[i, 1]) / s
                                                             y[i, 2] = exp(x[i, 2]) / s

The lanes run along i, and each element is loaded and computed once.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.expr import (
    Load,
)
from ...ir.in_place import overwrites, shared_roots
from ...ir.index import Index, Var, product
from ...ir.nodes import Map, Reduce
from ...ir.program import AnyNode
from ...ir.rewrite import unroll, unroll_reduction
from ...ir.rewrite.reductions import OPERATORS
from ...machine.cpu_loops import LANE_LOOPS
from ..fusion.inline import inlined
from ..fusion.invert import invert
from ..graph import NodeGraph, label
from ..remarks import Remarks
from .vector_axis import SCALAR_REDUCTIONS


def unroll_reductions(graph: NodeGraph, remarks: Remarks) -> None:
    """Writes out the maps over few elements that read what was reduced over as many, with all such reductions."""
    for node in list(graph.nodes):
        if isinstance(node, Map) and node in graph.nodes:
            found = _short_loop(graph, node)
            if found is not None:
                _write_out(graph, node, *found, remarks)


def _short_loop(graph: NodeGraph, node: Map) -> tuple[Var, list[Reduce]] | None:
    """A loop of few turns, and the reductions over as many elements that all its turns read alike."""
    for short in node.dims:
        if not 2 <= (short.extent.constant or 0) <= LANE_LOOPS.few or len(node.dims) < 2:
            continue
        chain = list(dict.fromkeys(_makers(graph, node, short.extent)))
        direct = [ld for e in node.expressions() for ld in e.loads if graph.producer(ld.buffer) in chain]
        alone = all(r is node or r in chain for maker in chain for b in maker.writes() for r in graph.readers(b))
        if chain and alone and not any(short in ld.index.vars() for ld in direct) and _stays(graph, node, chain):
            return short, sorted(chain, key=graph.position)
    return None


def _makers(graph: NodeGraph, node: Map | Reduce, count: Index) -> Iterator[Reduce]:
    """The reductions over `count` elements whose results the node reads, and those whose results they read."""
    for load in dict.fromkeys(ld for e in node.expressions() for ld in e.loads):
        maker = graph.producer(load.buffer)
        if load.buffer.kind == "temp" and isinstance(maker, Reduce) and _fits(maker, load, count):
            yield maker
            yield from _makers(graph, maker, count)


def _fits(node: Reduce, load: Load, count: Index) -> bool:
    plain = len(node.stores) == 1 and all(f.op in OPERATORS and f.op not in SCALAR_REDUCTIONS for f in node.reductions)
    return (
        plain
        and product(v.extent for v in node.rdims) == count
        and (invert(node.stores[0], node.dims, load.index) is not None)
    )


def _stays(graph: NodeGraph, node: Map, chain: list[Reduce]) -> bool:
    """Nothing is written over in place before the map reads it, and not by the map itself."""
    return not any(graph.crosses(m.reads(), m, node) or shared_roots(m.reads()) & overwrites(node) for m in chain)


def _write_out(graph: NodeGraph, node: Map, short: Var, chain: list[Reduce], remarks: Remarks) -> None:
    changed: AnyNode = unroll(node, short)
    for maker in reversed(chain):
        written = unroll_reduction(maker)
        changed = inlined(changed, written, written.stores[0])
        remarks.fused(label(maker), label(node), "few elements: computed in registers")
    graph.replace(node, changed)
    for maker in reversed(chain):
        graph.remove(maker)
