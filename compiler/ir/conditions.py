"""Conditions that a place lies inside of a dimension, and what they prove.

where(0 <= i - 1 and i - 1 < n, x[min(max(i - 1, 0), n - 1)], other)     the clamp is i - 1 where it counts
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .dtypes import DTYPES
from .expr import Call, Const, Expr, IndexValue, Load, rewrite
from .index import ONE, ZERO, Atom, Binary, Index, Var, as_index, maximum, minimum

#: comparisons, and what they are with their sides exchanged
MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq"}


def is_low(value: Expr) -> bool:
    """Whether an expression is -inf, the score of what a mask hides."""
    return isinstance(value, Const) and value.value == -math.inf


#: reductions with a number that changes none of their results
WITH_NEUTRAL = ("sum", "max", "min")


def neutral(reduction: str, dtype: str) -> float | int:
    """The number of a type that a sum, a maximum or a minimum starts from: it changes nothing."""
    kind, bits = DTYPES[dtype].kind, DTYPES[dtype].size * 8
    if reduction == "sum":
        return 0.0 if kind == "f" else 0
    if kind == "f":
        return -math.inf if reduction == "max" else math.inf
    low, high = (0, 2**bits - 1) if dtype == "u8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if reduction == "max" else high


def is_neutral(value: Expr, reduction: str) -> bool:
    """Whether an expression is a number that changes nothing in a reduction that takes it in."""
    if not isinstance(value, Const) or reduction not in WITH_NEUTRAL or DTYPES[value.dtype].kind == "b":
        return False
    return value.value == neutral(reduction, value.dtype)


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
    """All of the conditions as one bool expression; None where there are none, which holds always."""
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
