"""Which indices are the same for four neighbouring iterations of a loop, the first a multiple of four.

A block of Philox makes four words. Where four elements side by side take the words of one block, it is made once:

    word(block(i // 4), thread(i // 4), i % 4)     for i, i + 1, i + 2, i + 3
"""

from __future__ import annotations

from .expr import Call, Expr, IndexValue, Load
from .index import Atom, Binary, Index, Size, Var

__all__ = ["FOUR", "takes_words_in_turn"]

FOUR = 4


def takes_words_in_turn(e: Call, loop: Var) -> bool:
    """Whether neighbouring iterations of a loop take the four words of one block, in their order."""
    _, block, thread, slot = e.args
    return e.op == "random_word" and _is_same(block, loop) and _is_same(thread, loop) and _is_slot(slot, loop)


def _is_same(e: Expr, loop: Var) -> bool:
    """Whether a value is the same for all four."""
    if isinstance(e, IndexValue):
        return _same(e.index, loop)
    if isinstance(e, Load):
        return _same(e.index, loop)
    return all(_is_same(a, loop) for a in e.args) if isinstance(e, Call) else True


def _is_slot(e: Expr, loop: Var) -> bool:
    """Whether a value is the place among the four."""
    if not isinstance(e, IndexValue):
        return False
    terms = list(e.index.terms.items())
    if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][1] != 1:
        return False
    (atom,) = terms[0][0]
    return isinstance(atom, Binary) and atom.op == "%" and atom.b.constant == FOUR and _steps(atom.a, loop)


def _same(index: Index, loop: Var) -> bool:
    return all(_same_atom(a, loop) for monomial in index.terms for a in monomial)


def _same_atom(atom: Atom, loop: Var) -> bool:
    if isinstance(atom, Var):
        return atom is not loop and atom != loop
    if isinstance(atom, Binary):
        if atom.op == "//" and _steps(atom.a, loop) and _same(atom.b, loop) and _is_multiple(atom.b):
            return True
        return _same(atom.a, loop) and _same(atom.b, loop)
    return isinstance(atom, Size)


def _steps(index: Index, loop: Var) -> bool:
    """Whether an index is a multiple of four for the first of four, and one more for each of the others."""
    found = 0
    for monomial, factor in index.terms.items():
        if factor == 1 and len(monomial) == 1 and _steps_atom(monomial[0], loop):
            found += 1
        elif factor % FOUR or not all(_same_atom(a, loop) for a in monomial):
            return False
    return found == 1


def _steps_atom(atom: Atom, loop: Var) -> bool:
    if isinstance(atom, Var):
        return atom == loop
    is_rest = isinstance(atom, Binary) and atom.op == "%"
    return is_rest and _steps(atom.a, loop) and _same(atom.b, loop) and _is_multiple(atom.b)  # type: ignore[attr-defined]


def _is_multiple(index: Index) -> bool:
    return bool(index.terms) and all(factor % FOUR == 0 for factor in index.terms.values())
