"""Masked loads at the bounds of a dimension: a vector that lies partly outside loads only the lanes inside.

where(0 <= i - 1 and i - 1 < n, x[clamp(i - 1)], other)     ->      i - 1 in [0, n) reads x[i - 1]
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.conditions import bound, conditions, conjunction, unclamped
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Const, Expr, Load
from ...ir.index import Index, Indirect, Var, as_index
from ...ir.lanes import depends, lane_stride

MOST_APART = 8  # lanes that lie this far apart are picked out of whole vectors
DIVISIONS = ("floor_div", "remainder", "trunc_div", "fmod")


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
