"""Early casts: the weights of a step are rounded to 16 bits in front of all else, by one kernel.

w1h[i] = to_bf16(w1[i])                              w1h[i] = to_bf16(w1[i]); w2h[j] = to_bf16(w2[j])
y = f(x @ w1h)                                 ->    y = f(x @ w1h)
w2h[j] = to_bf16(w2[j])                              z = y @ w2h
z = y @ w2h

Law: they read what the call finds in memory that outlives it, and nothing in front of them writes that. A step keeps
its rounded weights for the backward anyway.
"""

from __future__ import annotations

from ...ir.expr import Call, Load
from ...ir.index import Indirect
from ...ir.nodes import Map
from ..graph import NodeGraph
from .late_updates import KEPT


def round_early(graph: NodeGraph, most: int) -> None:
    """Moves the roundings of the first values of the state to the front. most: kernels that one launch takes."""
    found = [n for n in graph.nodes if isinstance(n, Map) and is_rounding(n) and not _late(graph, n)][:most]
    if len(found) > 1:
        for node in reversed(found):
            graph.move_to_front(node)


def is_rounding(node: Map) -> bool:
    """Whether a map does nothing but to round elements of the state, or to copy them; its loops are of fixed sizes."""
    if len(node.stores) != 1 or any(v.extent.constant is None for v in node.dims):
        return False
    (store,) = node.stores
    value = store.value
    while isinstance(value, Call) and value.op == "cast":
        (value,) = value.args
    loads = isinstance(value, Load) and value.buffer.kind in KEPT and value.buffer.of is None
    places = (*store.index.atoms(), *(value.index.atoms() if isinstance(value, Load) else ()))
    return loads and store.buffer.kind == "temp" and not any(isinstance(a, Indirect) for a in places)


def _late(graph: NodeGraph, node: Map) -> bool:
    """Whether something writes what it reads, or stores to a part of its result, in front of it."""
    place = graph.position(node)
    written = {b.root for b in (*node.reads(), *node.writes())}
    before = (n for n in graph.nodes if graph.position(n) < place)
    return any(b.root in written for n in before for b in n.writes())
