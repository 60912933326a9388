"""The largest value that an index may have, over all sizes and loops."""

from __future__ import annotations

from .index import Atom, Binary, Index, Indirect, Size, Var


def largest(index: Index) -> int | None:
    """An upper bound of a non-negative index over all sizes and loops, None when there is none."""
    total = 0
    for monomial, c in index.terms.items():
        if c < 0:
            continue
        value = c
        for atom in monomial:
            bound = _largest_atom(atom)
            if bound is None:
                return None
            value *= bound
        total += value
    return total


def _largest_atom(atom: Atom) -> int | None:
    if isinstance(atom, Size):
        return atom.hi
    if isinstance(atom, Var | Indirect):
        top = largest(atom.extent)
        return None if top is None else max(top - 1, 0)
    assert isinstance(atom, Binary)
    a, b = largest(atom.a), largest(atom.b)
    if atom.op == "//":
        low = atom.b.constant
        return None if a is None else a // low if low else a
    if atom.op == "%":
        return None if b is None else max(b - 1, 0)
    bounds = [x for x in (a, b) if x is not None]
    if atom.op == "min":
        return min(bounds, default=None)
    return max(bounds) if len(bounds) == 2 else None
