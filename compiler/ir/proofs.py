"""Proofs about indices that try more than the simplification of indices does: for the laws of the loop IR.

Indices are simplified with less, as the forms of windows are recognised by their clamps.
"""

from __future__ import annotations

import math

from .index import Binary, Index, Size, Var, exact_div, factor_sign, factors_of, lowest

__all__ = ["nonnegative_by_cases"]

_MOST_CHOICES = 3  # minima and maxima whose sides are tried: each doubles the proofs


def nonnegative_by_cases(e: Index) -> bool:
    """`Index.nonnegative` that also tries both sides of minima and maxima, multiples and least values of quotients
    (n * ((n + 1) // 2) > 0 for n >= 3), and loops at their ends before quotients."""
    if e.nonnegative() or _with_least_quotients(e).nonnegative():
        return True
    at_ends = _loops_at_ends(e)
    if at_ends != e and nonnegative_by_cases(at_ends):
        return True
    low, stuck = lowest(e)
    if stuck is None:
        return False
    choices = _choices(low)
    if choices:
        return _by_sides(low, choices) or (low != e and _by_sides(e, _choices(e)))
    if not (isinstance(stuck, Binary) and stuck.op == "//" and (stuck.b.constant or 0) > 1):
        return False
    times = stuck.b  # b * e >= 0 says that e >= 0
    return exact_div(factors_of(low, stuck), times) is None and nonnegative_by_cases(low * times)


def _choices(e: Index) -> list[Binary]:
    """The minima and maxima that e adds up."""
    return list({a: None for m in e.terms for a in m if isinstance(a, Binary) and a.op in ("min", "max")})


def _by_sides(e: Index, choices: list[Binary]) -> bool:
    """Whether e >= 0 with either side of the first of its choices."""
    sides = (choices[0].a, choices[0].b) if 0 < len(choices) <= _MOST_CHOICES else ()
    return bool(sides) and all(nonnegative_by_cases(e.substitute({choices[0]: side})) for side in sides)


def _with_least_quotients(e: Index) -> Index:
    """A lower bound of e: quotients of sizes that make it larger are as small as they may be."""
    for atom in {a: None for m in e.terms for a in m if isinstance(a, Binary) and a.op == "//"}:
        with_it = {m: c for m, c in e.terms.items() if atom in m}
        by, least = atom.b.constant or 0, _least(atom.a)
        rising = all(c > 0 and m.count(atom) == 1 for m, c in with_it.items())
        others = all(isinstance(a, Size) for m in with_it for a in m if a != atom)
        if rising and others and by > 0 and least is not None and least >= 0:
            rest = Index({m: c for m, c in e.terms.items() if m not in with_it})
            e = rest + factors_of(e, atom) * (least // by)
    return e


def _least(e: Index) -> int | None:
    """The least value of a formula of sizes, each of which makes it larger."""
    if any(not isinstance(a, Size) for m in e.terms for a in m) or any(m and c < 0 for m, c in e.terms.items()):
        return None
    return sum(c * math.prod(a.lo for a in m if isinstance(a, Size)) for m, c in e.terms.items())


def _loops_at_ends(e: Index) -> Index:
    """A lower bound of e in which loops have ended that no quotient or remainder reads: what their extents are made of
    may cancel, as in n * ((n + 1) // 2) - i - 1 for i < n * ((n + 1) // 2)."""
    loops = {a: None for m in e.terms for a in m if isinstance(a, Var)}
    for loop in loops:
        read = any(loop in a.a.vars() | a.b.vars() for m in e.terms for a in m if isinstance(a, Binary))
        factor = factors_of(e, loop)
        sign = None if read or loop in factor.vars() else factor_sign(factor)
        if sign is not None:
            rest = Index({m: c for m, c in e.terms.items() if loop not in m})
            e = rest if sign > 0 else rest + factor * (loop.extent - 1)
    return e
