"""Conditions that a place lies inside of a dimension: what they say of loops and of loads.

where(0 <= i - 1 and i - 1 < n, x[clamp(i - 1)], other)     ->      i - 1 in [0, n) reads x[i - 1]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..ir.dtypes import DTYPES
from ..ir.expr import Call, Const, Expr, IndexValue, Load, rewrite
from ..ir.index import ONE, ZERO, Atom, Binary, Index, Indirect, Var, as_index, maximum, minimum
from ..ir.lanes import depends, lane_stride

MOST_APART = 8  # lanes that lie this far apart are picked out of whole vectors
DIVISIONS = ("floor_div", "remainder", "trunc_div", "fmod")


@dataclass(frozen=True)
class Bound:
    """`place` >= 0 when limit is None, else place < limit."""

    place: Index
    limit: Index | None

    def apply(self, loops: Sequence[Var], bounds: dict[Var, tuple[Index, Index]]) -> bool:
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


def conditions(e: Expr) -> Iterator[Expr]:
    """The parts of a conjunction."""
    if isinstance(e, Call) and e.op == "logical_and":
        for arg in e.args:
            yield from conditions(arg)
    else:
        yield e


def conjunction(parts: Sequence[Expr]) -> Expr | None:
    total: Expr | None = None
    for part in parts:
        total = part if total is None else Call("logical_and", (total, part), "bool")
    return total


def bound(e: Expr) -> Bound | None:
    """What a comparison of an index says; None for any other condition."""
    if not isinstance(e, Call) or e.op not in ("ge", "lt"):
        return None
    place, limit = e.args
    if not isinstance(place, IndexValue) or not isinstance(limit, IndexValue):
        return None
    if e.op == "lt":
        return Bound(place.index, limit.index)
    return Bound(place.index, None) if limit.index == ZERO else None


def unclamped(e: Expr, proved: set[Bound]) -> Expr:
    """The expression whose loads do not clamp what is proved to lie inside."""

    def leaf(x: Expr) -> Expr | None:
        return Load(x.buffer, _unclamped(x.index, proved)) if isinstance(x, Load) else None

    return rewrite(e, leaf)


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


def _computes_anywhere(e: Expr) -> bool:
    """Whether any elements may stand for those that are left out: none is looked up or divided by as an integer."""
    if any(isinstance(a, Indirect) for load in e.loads for a in load.index.atoms()):
        return False
    return not any(isinstance(x, Call) and x.op in DIVISIONS and DTYPES[x.dtype].kind == "i" for x in e.walk())


@dataclass(frozen=True)
class Inside:
    """where(condition and 0 <= place < limit, value, other), the place growing by `step` from lane to lane.

    value: does not clamp the place; loads: those of its loads that are read where the place is inside alone.
    """

    condition: Expr | None
    place: Index
    limit: Index | None
    step: int
    value: Expr
    loads: tuple[Load, ...]
    other: Const


def inside(e: Call, vector: Var) -> Inside | None:
    """The choice as one between lanes that are inside of a dimension and those that are not; None for any other."""
    parts: list[Expr] = []
    value: Expr = e
    while isinstance(value, Call) and value.op == "where" and value.args[2] == e.args[2]:
        parts += conditions(value.args[0])
        value = value.args[1]
    other = e.args[2]
    moving = [p for p in parts if vector in p.vars()]
    bounds = [b for b in map(bound, moving) if b is not None]
    places = {b.place for b in bounds}
    if not isinstance(other, Const) or not bounds or len(bounds) < len(moving) or len(places) > 1:
        return None
    (place,) = places
    limits = {b.limit for b in bounds if b.limit is not None}
    stride = place.coefficient(vector)
    step = stride.constant if stride is not None else None
    if (
        len(limits) > 1
        or any(depends(limit, vector) for limit in limits)
        or step is None
        or not 1 <= step <= MOST_APART
    ):
        return None
    whole = {b for b in map(bound, parts) if b is not None}
    plain = unclamped(value, whole)
    if not _computes_anywhere(plain):
        return None
    loads = tuple(dict.fromkeys(ld for ld in plain.loads if ld not in value.loads))
    if not loads or any(lane_stride(ld.index, vector) != as_index(step) for ld in loads):
        return None
    rest = conjunction([p for p in parts if vector not in p.vars()])
    return Inside(rest, place, next(iter(limits), None), step, plain, loads, other)
