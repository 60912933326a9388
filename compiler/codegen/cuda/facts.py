"""What a condition says of indices: inside `where(i < 32, x[min(i, 31)], ...)` the element is x[i].

A clamped index, which keeps a load inside its buffer where its value is not wanted, is no run of neighbours to Triton;
a mask does the same and leaves the index plain.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Call, Const, Expr, IndexValue
from ...ir.index import Atom, Binary, Index, as_index, of

#: comparison -> the index that is at least 0 when it holds, and when it does not
_MEANING = {
    "lt": (lambda a, b: b - a - 1, lambda a, b: a - b),
    "le": (lambda a, b: b - a, lambda a, b: a - b - 1),
    "gt": (lambda a, b: a - b - 1, lambda a, b: b - a),
    "ge": (lambda a, b: a - b, lambda a, b: b - a - 1),
}


def facts(condition: Expr, holds: bool) -> list[Index]:
    """Indices that are at least 0 when the condition holds (or does not)."""
    if not isinstance(condition, Call):
        return []
    if condition.op == "logical_and" and holds:
        return [fact for part in condition.args for fact in facts(part, True)]
    if condition.op == "logical_or" and not holds:
        return [fact for part in condition.args for fact in facts(part, False)]
    if condition.op not in _MEANING:
        return []
    a, b = (_index(arg) for arg in condition.args)
    if a is None or b is None:
        return []
    return [_MEANING[condition.op][0 if holds else 1](a, b)]


def plain(index: Index, known: Sequence[Index]) -> Index:
    """The index without the minima and maxima that the facts decide."""
    total = as_index(0)
    for monomial, c in index.terms.items():
        term = as_index(c)
        for atom in monomial:
            term = term * _atom(atom, known)
        total = total + term
    return total


def _atom(atom: Atom, known: Sequence[Index]) -> Index:
    if not isinstance(atom, Binary) or atom.op not in ("min", "max"):
        return of(atom)
    a, b = plain(atom.a, known), plain(atom.b, known)
    sides = ((a, b), (b, a))
    for one, other in sides:
        above = one - other if atom.op == "max" else other - one
        if above.nonnegative() or any((above - fact).nonnegative() for fact in known):
            return one
    return of(Binary(atom.op, a, b))


def _index(e: Expr) -> Index | None:
    if isinstance(e, IndexValue):
        return e.index
    if isinstance(e, Const) and not isinstance(e.value, (bool, float)):
        return as_index(int(e.value))
    return None
