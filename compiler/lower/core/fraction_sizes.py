"""Sizes that the model makes of fractions, as formulas of whole numbers.

    int(n * 0.6)        TruncToInt(0.6*ToFloat(n))       ->     n*3 // 5
    ceil(n / 4)         CeilToInt(IntTrueDiv(n, 4))      ->     (n + 3) // 4
    round(n * 1.5)      RoundToInt(1.5*ToFloat(n))       ->     (n*6 + 1 + n*3//2%2) // 4        halves to even

Python computes the fraction in float64, which may be a little off: int(90 * 0.7) is 62. So a formula counts only where
it is known to give what Python gives for every size in range: because nothing is rounded (halves, eighths), because one
whole number is divided by another, because the constant is near enough, or because all values were tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import sympy

from ...ir.bounds import largest
from ...ir.index import Index, maximum, of

__all__ = ["ROUNDED", "Refused", "is_rounded", "rounded"]

#: torch's functions from fractions to whole numbers, and what they give
ROUNDED: Mapping[str, Callable[[Any], Any]] = {
    "TruncToInt": np.trunc,
    "FloorToInt": np.floor,
    "CeilToInt": np.ceil,
    "RoundToInt": np.rint,
}
#: a constant stands for the nearest fraction with a denominator up to the first of these that is right
_DENOMINATORS = (16, 100, 1000, 10**4, 10**6)
#: so many values of the sizes are tried
TRIED = 2**22
#: float64 holds whole numbers up to here
_EXACT = 2**53

Ratio = tuple[Any, int]  # numerator, denominator > 0


def is_rounded(e: sympy.Basic) -> bool:
    """Whether a formula has a rounded fraction in it."""
    return any(type(a).__name__ in ROUNDED for a in sympy.preorder_traversal(e))


def rounded(e: sympy.Expr, index: Callable[[sympy.Expr], Index]) -> Index:
    """The index of a rounded fraction; index: of a formula of whole numbers.

    Raises:
        Refused: no formula of whole numbers is known to be the same for all sizes in range.
    """
    kind, fraction = type(e).__name__, e.args[0]
    if type(fraction).__name__ == "IntTrueDiv":  # float64 rounds the quotient, but never on to a whole number
        a, b = (index(part) for part in fraction.args)
        if (largest(a) or _EXACT) < _EXACT // 2 and (b - 1).nonnegative():
            return _whole(kind, a, b, maximum)
    leaves = {leaf: index(leaf) for leaf in dict.fromkeys(_leaves(fraction))}
    exact, wrong = _exact_up_to(fraction, leaves) is not None, ""
    for limit in _DENOMINATORS:
        found = _whole(kind, *_ratio(fraction, leaves, limit), maximum)
        if exact or _is_near(kind, fraction, leaves, limit):
            return found
        values = _all_values(leaves)
        given = ROUNDED[kind](_floats(fraction, values)).astype(np.int64)
        different = np.flatnonzero(given != _whole(kind, *_ratio(fraction, values, limit), np.maximum))
        if not different.size:
            return found
        at = ", ".join(f"{leaves[leaf]} = {value.flat[different[0]]}" for leaf, value in values.items())
        wrong = wrong or f"for {at} Python's numbers are rounded to {given.flat[different[0]]}"
    raise Refused(wrong)


class Refused(Exception):
    """A rounded fraction without a formula of whole numbers; the text is the reason."""


def _whole(kind: str, a: Any, b: Any, larger: Callable[[Any, Any], Any]) -> Any:
    """The fraction a / b, b > 0, as a whole number."""
    match kind:
        case "FloorToInt":
            return a // b
        case "CeilToInt":
            return (a + (b - 1)) // b
        case "RoundToInt":
            return (a * 2 + (b - 1) + a // b % 2) // (b * 2)
    if isinstance(a, Index) and a.nonnegative():
        return a // b
    return larger(a, 0) // b - larger(-a, 0) // b


def _leaves(e: sympy.Expr) -> Iterator[sympy.Expr]:
    """The formulas of whole numbers that a fraction is made of."""
    match type(e).__name__:
        case "ToFloat":
            yield e.args[0]
        case "IntTrueDiv" if e.args[1].is_Integer:
            yield e.args[0]
        case "Add" | "Mul":
            for part in e.args:
                yield from _leaves(part)
        case "FloatTrueDiv" if e.args[1].is_number:
            yield from _leaves(e.args[0])
        case _ if not e.is_number:
            raise Refused("only sums, products and quotients by numbers are")


def _ratio(e: sympy.Expr, leaves: Mapping[sympy.Expr, Any], limit: int) -> Ratio:
    """A fraction of indices or of arrays, its constants as the nearest fractions with small denominators."""
    match type(e).__name__:
        case "ToFloat":
            return leaves[e.args[0]], 1
        case "IntTrueDiv" if e.args[0] in leaves:
            return leaves[e.args[0]], int(e.args[1])
        case "Add":
            parts = [_ratio(part, leaves, limit) for part in e.args]
            b = math.lcm(*(b for _, b in parts))
            return sum((a * (b // own) for a, own in parts[1:]), start=parts[0][0] * (b // parts[0][1])), b
        case "Mul":
            a, b = _ratio(e.args[0], leaves, limit)
            for part in e.args[1:]:
                c, d = _ratio(part, leaves, limit)
                a, b = a * c, b * d
            return a, b
        case "FloatTrueDiv":
            (a, b), (c, d) = (_ratio(part, leaves, limit) for part in e.args)
            return (a * d, b * c) if c > 0 else (a * -d, b * -c)
    number = Fraction(float(e)).limit_denominator(limit)
    return number.numerator, number.denominator


def _floats(e: sympy.Expr, values: Mapping[sympy.Expr, Any]) -> Any:
    """What Python computes for a fraction, in float64."""
    match type(e).__name__:
        case "ToFloat" | "IntTrueDiv":
            divisor = int(e.args[1]) if len(e.args) > 1 else 1
            return values[e.args[0]].astype(np.float64) / divisor
        case "Add":
            return sum((_floats(part, values) for part in e.args[1:]), start=_floats(e.args[0], values))
        case "Mul":
            return math.prod((_floats(part, values) for part in e.args[1:]), start=_floats(e.args[0], values))
        case "FloatTrueDiv":
            return _floats(e.args[0], values) / float(e.args[1])
    return float(e)


def _exact_up_to(e: sympy.Expr, leaves: Mapping[sympy.Expr, Index]) -> Ratio | None:
    """(a, b) when float64 holds the fraction and all that it is made of as multiples of 1/b up to a/b, b a power of
    two."""
    bound: Ratio | None = None
    name = type(e).__name__
    if name in ("ToFloat", "IntTrueDiv"):
        top = largest(leaves[e.args[0]]) if leaves[e.args[0]].nonnegative() else None
        bound = None if top is None else (top, int(e.args[1]) if len(e.args) > 1 else 1)
    elif name in ("Add", "Mul"):
        parts = [_exact_up_to(part, leaves) for part in e.args]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            b = math.lcm(*(b for _, b in known)) if name == "Add" else math.prod(b for _, b in known)
            a = sum(a * (b // own) for a, own in known) if name == "Add" else math.prod(a for a, _ in known)
            bound = a, b
    elif e.is_number:
        number = Fraction(abs(float(e)))
        bound = number.numerator, number.denominator
    if bound is None or bound[0] > _EXACT or bound[1] & (bound[1] - 1):
        return None
    return bound


def _is_near(kind: str, e: sympy.Expr, leaves: Mapping[sympy.Expr, Index], limit: int) -> bool:
    """Whether e is a size times a constant so near to p/q that float64 gives n*p/q itself where that is a multiple of
    1/2, and a number on the same side of those elsewhere: half the distance of two numbers is 2**-54 of them at least.
    What is rounded down may be larger."""
    if type(e).__name__ != "Mul" or [type(part).__name__ for part in e.args if not part.is_number] != ["ToFloat"]:
        return False
    (i,), constants = leaves.values(), [part for part in e.args if part.is_number]
    given = Fraction(float(constants[0]))
    near, top = given.limit_denominator(limit), largest(i)
    if len(constants) != 1 or near <= 0 or top is None or not i.nonnegative():
        return False
    off, down = (given / near - 1) * 2**54, kind in ("TruncToInt", "FloorToInt")
    return -1 <= off <= (2 if down else 1) and top * near.numerator < 2**50


def _all_values(leaves: Mapping[sympy.Expr, Index]) -> dict[sympy.Expr, Any]:
    """Arrays of all values that these formulas may have together, flat."""
    ranges = []
    for i in leaves.values():
        top, low = largest(i), next((size.lo for size in i.sizes() if i == of(size)), 0)
        if top is None or not i.nonnegative():
            raise Refused("its sizes have no maximum")
        ranges.append(range(low, top + 1))
    if math.prod(map(len, ranges)) > TRIED:
        raise Refused(f"more than {TRIED} values of its sizes would have to be tried")
    grids = np.meshgrid(*(np.arange(r.start, r.stop) for r in ranges), indexing="ij")
    return dict(zip(leaves, (grid.ravel() for grid in grids), strict=True))
