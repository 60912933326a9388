"""Tensors whose elements are known formulas of their indices: positions, constants, masks.

    Affine   element [i, j] = const + steps[0]*i + steps[1]*j                      arange, position ids
    Choice   element [i, j] = yes where every condition >= 0, else no              full, causal and window masks

A condition is itself an Affine. Forms do not hold a shape: that is in the node's meta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy

from ..sizes import Size, SymbolRange, bounds, expr

Number: TypeAlias = "bool | int | float"
Ranges: TypeAlias = Mapping[sympy.Symbol, SymbolRange]


@dataclass(frozen=True)
class Affine:
    """const + sum(steps[d] * index[d]); an integer tensor."""

    steps: tuple[Any, ...]
    const: Any = 0

    @property
    def rank(self) -> int:
        return len(self.steps)

    @property
    def uniform(self) -> bool:
        return all(s == 0 for s in self.steps)

    def padded(self, rank: int) -> Affine:
        """With broadcast dimensions in front."""
        return Affine((0,) * (rank - self.rank) + self.steps, self.const)

    def without(self, dims: Iterable[int]) -> Affine:
        """With no step along dimensions of size 1: they may be broadcast."""
        single = set(dims)
        return Affine(tuple(0 if d in single else s for d, s in enumerate(self.steps)), self.const)

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        n = max(self.rank, other.rank)
        a, b = self.padded(n), other.padded(n)
        steps = tuple(expr(x + factor * y) for x, y in zip(a.steps, b.steps, strict=True))
        return Affine(steps, expr(a.const + factor * b.const))

    def times(self, factor: int) -> Affine:
        return Affine(tuple(s * factor for s in self.steps), self.const * factor)

    def negated_condition(self) -> Affine:
        """not (self >= 0), over the integers: -self - 1 >= 0."""
        return Affine(tuple(-s for s in self.steps), -self.const - 1)

    def at(self, indices: Sequence[Affine], rank: int) -> Affine:
        """With index d replaced by indices[d], an Affine of `rank` dimensions."""
        total = Affine((0,) * rank, self.const)
        for step, index in zip(self.steps, indices, strict=True):
            total = total.plus(Affine(tuple(s * step for s in index.steps), index.const * step))
        return total.padded(rank)

    def bounds(self, shape: Sequence[Size], ranges: Ranges) -> tuple[float, float]:
        """Lowest and highest element of a tensor of this shape, for all values of the symbols.

        The steps' extremes are added as formulas first, so that (s - 1) - (s - 1) cancels.
        """
        low: Any = self.const
        high: Any = self.const
        for step, size in zip(self.steps, shape, strict=True):
            if step == 0:
                continue
            reach = step * (expr(size) - 1)
            sign = bounds(expr(step), ranges)
            if sign[0] >= 0:
                high = high + reach
            elif sign[1] <= 0:
                low = low + reach
            else:
                return float("-inf"), float("inf")
        return bounds(expr(low), ranges)[0], bounds(expr(high), ranges)[1]


@dataclass(frozen=True)
class Choice:
    """yes where all conditions hold, else no. Without conditions: yes everywhere."""

    rank: int
    conditions: frozenset[Affine]
    yes: Number
    no: Number

    @property
    def uniform(self) -> bool:
        return not self.conditions

    def padded(self, rank: int) -> Choice:
        return Choice(rank, frozenset(c.padded(rank) for c in self.conditions), self.yes, self.no)

    def without(self, dims: Iterable[int]) -> Choice:
        single = list(dims)
        return Choice(self.rank, frozenset(c.without(single) for c in self.conditions), self.yes, self.no)

    def at(self, indices: Sequence[Affine], rank: int) -> Choice:
        return Choice(rank, frozenset(c.at(indices, rank) for c in self.conditions), self.yes, self.no)

    def map(self, function: Callable[[Any], Number]) -> Choice:
        return Choice(self.rank, self.conditions, function(self.yes), function(self.no))


Form: TypeAlias = "Affine | Choice"


def uniform(rank: int, value: Number) -> Choice:
    return Choice(rank, frozenset(), value, value)


def unit(rank: int, dim: int) -> Affine:
    """The index of a dimension itself."""
    return Affine(tuple(int(d == dim) for d in range(rank)))


def settled(form: Choice, shape: Sequence[Size], ranges: Ranges) -> Choice:
    """Without the conditions that hold for every element; `no` everywhere when one never holds."""
    if form.yes == form.no and type(form.yes) is type(form.no):
        return uniform(form.rank, form.yes)
    left = []
    for condition in form.conditions:
        low, high = condition.bounds(shape, ranges)
        if high < 0:
            return uniform(form.rank, form.no)
        if low < 0:
            left.append(condition)
    return uniform(form.rank, form.yes) if not left else Choice(form.rank, frozenset(left), form.yes, form.no)


def flipped(form: Choice) -> Choice | None:
    """The same values with yes and no exchanged; possible for at most one condition."""
    if form.uniform:
        return form
    if len(form.conditions) > 1:
        return None
    (condition,) = form.conditions
    return Choice(form.rank, frozenset([condition.negated_condition()]), form.no, form.yes)


def as_choice(form: Form) -> Choice | None:
    """A form as a Choice; only a uniform Affine with a numeric value is one."""
    if isinstance(form, Choice):
        return form
    return uniform(form.rank, form.const) if form.uniform and isinstance(form.const, int) else None


def as_affine(form: Form) -> Affine | None:
    """A form as an Affine; only a uniform integer Choice is one."""
    if isinstance(form, Affine):
        return form
    whole = form.uniform and isinstance(form.yes, int) and not isinstance(form.yes, bool)
    return Affine((0,) * form.rank, form.yes) if whole else None


def combined(a: Choice, b: Choice, function: Callable[[Any, Any], Number]) -> Choice | None:
    """function over two forms, where the result is again a choice between two values."""
    rank = max(a.rank, b.rank)
    a, b = a.padded(rank), b.padded(rank)
    if b.uniform:
        return a.map(lambda v: function(v, b.yes))
    if a.uniform:
        return b.map(lambda v: function(a.yes, v))
    if a.conditions == b.conditions:
        return Choice(rank, a.conditions, function(a.yes, b.yes), function(a.no, b.no))
    return _joined(a, b, function)


def _joined(a: Choice, b: Choice, function: Callable[[Any, Any], Number]) -> Choice | None:
    """All conditions together: right when the result is the same unless both hold (as of `and`, and sums of masks)."""
    for left in (a, flipped(a)):
        for right in (b, flipped(b)):
            if left is None or right is None:
                continue
            others = [function(left.yes, right.no), function(left.no, right.yes), function(left.no, right.no)]
            if all(o == others[0] for o in others):
                yes = function(left.yes, right.yes)
                return Choice(left.rank, left.conditions | right.conditions, yes, others[0])
    return None


def compared(a: Affine, b: Affine, name: str, shape: Sequence[Size], ranges: Ranges) -> Choice | None:
    """a <name> b element by element: eq, ne, lt, le, gt, ge."""
    n = len(shape)
    difference = a.plus(b, -1).padded(n)
    opposite = difference.times(-1)
    match name:
        case "ge":
            conditions: Iterable[Affine] = [difference]
        case "gt":
            conditions = [_less(difference)]
        case "le":
            conditions = [opposite]
        case "lt":
            conditions = [_less(opposite)]
        case "eq":
            conditions = [difference, opposite]
        case "ne":
            equal = settled(Choice(n, frozenset([difference, opposite]), False, True), shape, ranges)
            return equal if equal.uniform else None
        case _:
            return None
    return settled(Choice(n, frozenset(conditions), True, False), shape, ranges)


def _less(a: Affine) -> Affine:
    return Affine(a.steps, a.const - 1)
