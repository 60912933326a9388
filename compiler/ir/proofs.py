"""Proofs about indices that try more than the simplification of indices does: for the laws of the loop IR.

Indices are simplified with less, as the forms of windows are recognised by their clamps.
"""

from __future__ import annotations

from .index import Binary, Index, exact_div, factors_of, lowest

__all__ = ["nonnegative_by_cases"]

_MOST_CHOICES = 3  # minima and maxima whose sides are tried: each doubles the proofs


def nonnegative_by_cases(e: Index) -> bool:
    """`Index.nonnegative` that also tries both sides of minima and maxima, and multiples for quotients."""
    if e.nonnegative():
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
