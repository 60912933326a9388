"""Bound tightening: a condition on a reduced loop becomes the bounds of the loop.

    for k:3   reduce(0 <= 2*i + k - 1 < n ? x[clamp(2*i + k - 1)] : identity)
    ->  for k:(min(3, n + 1 - 2*i) - max(0, 1 - 2*i))   reduce(x[2*i + k + max(0, 1 - 2*i) - 1])

Pools then test no position and clamp no index.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.conditions import Bound, bound, conditions, conjunction, is_neutral, unclamped
from ...ir.expr import Call, Expr, substitute
from ...ir.index import ZERO, Atom, Index, Var, of
from ...ir.nodes import Reduce


def trim(node: Reduce, vector: Var | None) -> Reduce:
    """The reduction with loops that leave out what its condition leaves out; the node itself where there is none.

    vector: the kept loop along the lanes, which the bounds must not depend on; what they say of it stays a condition.
    """
    reduction = node.reductions[0]
    value = reduction.value
    if len(node.reductions) != 1 or not isinstance(value, Call) or value.op != "where":
        return node
    condition, inside, outside = value.args
    if not is_neutral(outside, reduction.op):
        return node
    bounds = {v: (ZERO, v.extent) for v in node.rdims}
    proved: set[Bound] = set()
    rest: list[Expr] = []
    for part in conditions(condition):
        test = bound(part) if vector not in part.vars() else None
        if test is not None and test.apply(node.rdims, bounds):
            proved.add(test)
        else:
            rest.append(part)
    if not proved:
        return node
    left = conjunction(rest)
    kept = unclamped(inside, proved)
    loops = {v: Var(v.name, end - first) for v, (first, end) in bounds.items()}
    places: dict[Atom, Index] = {v: of(loops[v]) + first for v, (first, _) in bounds.items()}
    moved = substitute(kept if left is None else Call("where", (left, kept, outside), value.dtype), places)
    return replace(node, rdims=tuple(loops[v] for v in node.rdims), reductions=(replace(reduction, value=moved),))
