"""Loop interchange of reductions: where the lanes would read with a stride, the loops take the order of the operand.

                                            for j:J, c:C   t[j*C + c] = sum_k x[(j*K + k)*C + c]
y[c, j] = sum_k x[(j*K + k)*C + c]    ->    for c:C, j:J   y[c, j] = t[j*C + c]

The results are few compared with the operand, so that another kernel can transpose them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.conditions import bound, conditions, unclamped
from ...ir.expr import Call, Expr, Load
from ...ir.index import ONE, Var, product, row_major
from ...ir.nodes import Map, Reduce, Store
from ...machine.cpu_loops import LANE_LOOPS
from ..cost.estimates import number
from ..graph import NodeGraph
from .vector_axis import step_of, vector_loop

MOST_RESULTS = 0.25  # of the elements that are reduced


def interchange_reductions(graph: NodeGraph) -> None:
    """Reorders reductions whose results lie in another order than their operands, to read operands as they lie."""
    for node in list(graph.nodes):
        if isinstance(node, Reduce):
            order = _read_order(node)
            if order is not None and any(s.index != row_major(order) for s in node.stores):
                graph.replace_by(node, _reduced(graph, node, order))


def _read_order(node: Reduce) -> tuple[Var, ...] | None:
    """The kept loops, slowest first, when they read side by side and the lanes chosen otherwise do not."""
    chosen = vector_loop(node)
    reduced = number(product(v.extent for v in node.rdims))
    if chosen in node.dims or reduced * MOST_RESULTS < 1 or len(node.dims) < 2:
        return None
    loads = [ld for f in node.reductions for ld in _where_inside(f.value).loads]
    if any(chosen is not None and ld.index.coefficient(chosen) in (ONE, -ONE) for ld in loads):
        return None
    orders = {_by_step(ld, node.dims) for ld in loads if all(step_of(ld, v) for v in node.dims)}
    order = next(iter(orders)) if len(orders) == 1 else None
    if not order or any(step_of(ld, order[-1]) not in (0, 1) for ld in loads):
        return None
    most = max(number(ld.buffer.size) for ld in loads)
    return order if number(product(v.extent for v in node.dims)) <= MOST_RESULTS * most else None


def _where_inside(value: Expr) -> Expr:
    """A value that is chosen by its place, where that is inside: nothing is clamped."""
    parts: list[Expr] = []
    while isinstance(value, Call) and value.op == "where":
        parts += conditions(value.args[0])
        value = value.args[1]
    return unclamped(value, {b for b in map(bound, parts) if b is not None})


def _by_step(load: Load, loops: Sequence[Var]) -> tuple[Var, ...] | None:
    """The loops by how far a load goes from turn to turn, where the fastest of them are neighbours in memory."""
    steps = {v: step_of(load, v) for v in loops}
    order = sorted(loops, key=lambda v: -(steps[v] or 0))
    dense = 1
    for v in reversed(order):
        if steps[v] != dense:
            break
        dense *= v.extent.constant or 1
    return tuple(order) if dense >= LANE_LOOPS.least else None


def _reduced(graph: NodeGraph, node: Reduce, order: tuple[Var, ...]) -> tuple[Reduce, Map]:
    place, size = row_major(order), product(v.extent for v in order)
    found = [Buffer(graph.free_name(f"{s.buffer.name}_reduced"), s.buffer.dtype, size, "temp") for s in node.stores]
    stores = tuple(Store(b, place, s.value) for b, s in zip(found, node.stores, strict=True))
    put = tuple(Store(s.buffer, s.index, Load(b, place)) for b, s in zip(found, node.stores, strict=True))
    return replace(node, dims=order, stores=stores), Map(node.dims, put, node.origin)
