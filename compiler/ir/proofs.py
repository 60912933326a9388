"""Proofs about indices that try more than the simplification of indices does: for the laws of the loop IR.

Indices are simplified with less, as the forms of windows are recognised by their clamps.
"""

from __future__ import annotations

import math

from .index import Binary, Index, Size, exact_div, factors_of, lowest

__all__ = ["nonnegative_by_cases"]

_MOST_CHOICES = 3  # minima and maxima whose sides are tried: each doubles the proofs


def nonnegative_by_cases(e: Index) -> bool:
    """`Index.nonnegative` that also tries both sides of minima and maxima, and multiples and least values of quotients:
    n * ((n + 1) // 2) > 0 for n >= 3."""
    if e.nonnegative() or _with_least_quotients(e).nonnegative():
        return True
    low, stuck = lowest(e)
    if stuck is None:
        return False
    choices = {a: None for m in low.terms for a in m if isinstance(a, Binary) and a.op in ("min", "max")}
    if choices:
        atom = next(iter(choices))
        sides = (atom.a, atom.b) if len(choices) <= _MOST_CHOICES else ()
        return bool(sides) and all(nonnegative_by_cases(low.substitute({atom: side})) for side in sides)
    if not (isinstance(stuck, Binary) and stuck.op == "//" and (stuck.b.constant or 0) > 1):
        return False
    times = stuck.b  # b * e >= 0 says that e >= 0
    return exact_div(factors_of(low, stuck), times) is None and nonnegative_by_cases(low * times)


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
