"""Loop interchange to the order of the stores, where lanes along the last loop would gather elements one by one.

for c:32  for q:300  y[q*32 + c] = sum_t x[at[q, t]*32 + c] * w[q, t]
                         ->      for q:300  for c:32  y[q*32 + c] = sum_t x[at[q, t]*32 + c] * w[q, t]

A view after the node, whose copy was fused into it, leaves the loops in the order of the computation.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.index import ONE, Var
from ...ir.nodes import Map, Reduce
from ...machine.cpu_loops import LANE_LOOPS
from ..graph import NodeGraph
from .collapse import collapse
from .vector_axis import keeps_indices, vector_loop


def interchange_stores(graph: NodeGraph) -> None:
    """Puts the loop innermost along which every access goes on by one element, where there is one."""
    for node in list(graph.nodes):
        if isinstance(node, Map | Reduce):
            merged = collapse(node)
            loop = _side_by_side(merged)
            if loop is not None:
                rest = tuple(v for v in merged.dims if v is not loop)
                graph.replace(node, replace(merged, dims=(*rest, loop)))


def _side_by_side(node: Map | Reduce) -> Var | None:
    """The kept loop, not the last one, that stores side by side and whose lanes read vectors or one element each, when
    those of the loop chosen otherwise do not."""
    if isinstance(node, Reduce) and keeps_indices(node):
        return None
    chosen = vector_loop(node)
    if chosen is not None and _dense(node, chosen):
        return None
    found = (v for v in node.dims[:-1] if _dense(node, v) and all(s.index.coefficient(v) == ONE for s in node.stores))
    return next((v for v in found if (v.extent.constant or LANE_LOOPS.least) >= LANE_LOOPS.least), None)


def _dense(node: Map | Reduce, loop: Var) -> bool:
    """Whether every access goes on by one element from turn to turn, or stays."""
    steps = [ld.index.coefficient(loop) for e in node.expressions() for ld in e.loads]
    return all(step is not None and (not step.terms or step == ONE) for step in steps)
