"""One-hot sums: a sum of which one element at most is no zero is that element.

s[i] = sum over j of where(j == t[i], v, 0)         ->         s[i] = where(0 <= t[i] and t[i] < J, v, 0)

The derivative of a cross entropy sums the row of its target like this.
"""

from __future__ import annotations

from ...ir.expr import Call, Const, Expr, IndexValue
from ...ir.index import ZERO, Index, of
from ...ir.nodes import Map, Reduce, Store
from ..graph import NodeGraph


def look_up_one_hot(graph: NodeGraph) -> None:
    """Makes maps of the sums that choose one element."""
    for node in list(graph.nodes):
        if isinstance(node, Reduce) and len(node.stores) == len(node.reductions) == len(node.rdims) == 1:
            chosen = _chosen(node)
            (store,) = node.stores
            if chosen is not None and store.value == node.reductions[0].acc:
                graph.replace(node, Map(node.dims, (Store(store.buffer, store.index, chosen),), node.origin))


def _chosen(node: Reduce) -> Expr | None:
    """The sum of a reduction that chooses one element; None for any other."""
    (reduction,), (loop,) = node.reductions, node.rdims
    value = reduction.value
    if reduction.op != "sum" or not isinstance(value, Call) or value.op != "where" or loop.extent.constant is None:
        return None
    test, own, zero = value.args
    if not (isinstance(zero, Const) and zero.value == 0 and isinstance(test, Call) and test.op == "eq"):
        return None
    place, other = test.args if isinstance(test.args[0], IndexValue) else reversed(test.args)
    if not (isinstance(place, IndexValue) and place.index == of(loop)) or other.dtype != "i64":
        return None
    if loop in own.vars() or loop in other.vars():
        return None
    inside = Call("logical_and", (_compare("ge", other, ZERO), _compare("lt", other, loop.extent)), "bool")
    # a sum is never -0.0
    return Call(
        "add", (Call("where", (inside, own, Const(0.0, own.dtype)), own.dtype), Const(0.0, own.dtype)), own.dtype
    )


def _compare(op: str, value: Expr, bound: Index) -> Expr:
    return Call(op, (value, IndexValue(bound)), "bool")
