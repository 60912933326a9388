"""Reduced loops run over what lies inside: a condition on a loop becomes its bounds.

    for k:3   fold(0 <= 2*i + k - 1 < n ? x[clamp(2*i + k - 1)] : identity)
    ->  for k:(min(3, n + 1 - 2*i) - max(0, 1 - 2*i))   fold(x[2*i + k + max(0, 1 - 2*i) - 1])

So pools test no position and clamp no index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir.expr import Call, Const, Expr, IndexValue, Load, rewrite, substitute
from ..ir.index import ONE, ZERO, Atom, Binary, Index, Var, as_index, maximum, minimum, of
from ..ir.nodes import Reduce

IDENTITIES = {"max": float("-inf"), "min": float("inf"), "sum": 0.0}


@dataclass(frozen=True)
class Bound:
    """`place` >= 0 when limit is None, else place < limit."""

    place: Index
    limit: Index | None

    def apply(self, loops: tuple[Var, ...], bounds: dict[Var, tuple[Index, Index]]) -> bool:
        """Narrows the bounds (first, end) of the only loop that the place depends on; False: there is none such."""
        found = [v for v in loops if v in self.place.vars()]
        factor = self.place.coefficient(found[0]) if len(found) == 1 else None
        step = factor.constant if factor is not None else None
        if step is None or step < 1 or (self.limit is not None and self.limit.vars() & set(loops)):
            return False
        rest, by = self.place.without(found[0]), as_index(step)
        first, end = bounds[found[0]]
        if self.limit is None:
            first = maximum(first, (by - ONE - rest) // by)
        else:
            end = minimum(end, (self.limit - rest - 1) // by + ONE)
        bounds[found[0]] = first, end
        return True


def trim(node: Reduce, vector: Var | None) -> Reduce:
    """The reduction with loops that leave out what its condition leaves out; the node itself where there is none.

    vector: the kept loop along the lanes, which the bounds must not depend on.
    """
    fold = node.folds[0]
    value = fold.value
    if len(node.folds) != 1 or fold.op not in IDENTITIES or not isinstance(value, Call) or value.op != "where":
        return node
    condition, inside, outside = value.args
    tests = [_bound(c) for c in _conditions(condition)]
    if not isinstance(outside, Const) or outside.value != IDENTITIES[fold.op]:
        return node
    bounds = {v: (ZERO, v.extent) for v in node.rdims}
    for test in tests:
        if test is None or not test.apply(node.rdims, bounds):
            return node
    if any(vector in index.vars() for sides in bounds.values() for index in sides):
        return node
    proved = {t for t in tests if t is not None}

    def unclamped(e: Expr) -> Expr | None:
        return Load(e.buffer, _unclamped(e.index, proved)) if isinstance(e, Load) else None

    loops = {v: Var(v.name, end - first) for v, (first, end) in bounds.items()}
    places: dict[Atom, Index] = {v: of(loops[v]) + first for v, (first, _) in bounds.items()}
    moved = substitute(rewrite(inside, unclamped), places)
    return replace(node, rdims=tuple(loops[v] for v in node.rdims), folds=(replace(fold, value=moved),))


def _conditions(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Call) and e.op == "logical_and":
        for arg in e.args:
            yield from _conditions(arg)
    else:
        yield e


def _bound(e: Expr) -> Bound | None:
    if not isinstance(e, Call) or e.op not in ("ge", "lt"):
        return None
    place, limit = e.args
    if not isinstance(place, IndexValue) or not isinstance(limit, IndexValue):
        return None
    if e.op == "lt":
        return Bound(place.index, limit.index)
    return Bound(place.index, None) if limit.index == ZERO else None


def _unclamped(index: Index, proved: set[Bound]) -> Index:
    """max(place, 0) and min(place, limit - 1) are the place itself where that is proved to lie inside."""
    values: dict[Atom, Index] = {}
    for atom in index.atoms():
        if isinstance(atom, Binary) and atom.op in ("min", "max"):
            place, limit = _unclamped(atom.a, proved), atom.b
            test = Bound(place, None) if atom.op == "max" else Bound(place, limit + 1)
            if test in proved and (atom.op == "min" or limit == ZERO):
                values[atom] = place
    return index.substitute(values) if values else index
