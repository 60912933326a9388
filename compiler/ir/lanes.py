"""How an index moves along the lanes of a vector."""

from __future__ import annotations

from .index import ONE, ZERO, Atom, Binary, Index, Indirect, Var

#: vectors start at multiples of this many elements of their loop, whatever the instruction set
ALIGNMENT = 16


def depends(index: Index, var: Var) -> bool:
    """Whether the index changes when the loop variable does; a variable inside a quotient or a load counts."""
    return var in index.vars()


def lane_stride(index: Index, var: Var) -> Index | None:
    """How much the index grows from lane to lane; None when that differs between lanes.

    Quotients and remainders by a multiple of 16 are even along a vector, as vectors start at multiples of 16:
    n // 64 stays, n % 64 grows by 1.
    """
    total = ZERO
    for monomial, c in index.terms.items():
        moving = [a for a in monomial if _moves(a, var)]
        if not moving:
            continue
        if len(moving) > 1:
            return None
        step = _atom_stride(moving[0], var)
        if step is None:
            return None
        rest = tuple(a for a in monomial if a is not moving[0])
        total = total + Index({rest: c}) * step
    return total


def direct(index: Index) -> Index:
    """The index without what is read from memory."""
    return Index({m: c for m, c in index.terms.items() if not any(isinstance(a, Indirect) for a in m)})


def wrapping_index(index: Index, var: Var) -> Binary | None:
    """The remainder (var + a) % n of an index that grows by 1 from lane to lane but for where it turns to 0."""
    moving = [(m, c) for m, c in index.terms.items() if any(_moves(a, var) for a in m)]
    if len(moving) != 1 or moving[0][1] != 1 or len(moving[0][0]) != 1:
        return None
    atom = moving[0][0][0]
    if not isinstance(atom, Binary) or atom.op != "%" or atom.a.coefficient(var) != ONE or depends(atom.b, var):
        return None
    return atom


def _moves(atom: Atom, var: Var) -> bool:
    if atom == var:
        return True
    if isinstance(atom, Binary):
        return depends(atom.a, var) or depends(atom.b, var)
    if isinstance(atom, Indirect):
        return var in atom.value.vars()  # type: ignore[attr-defined]
    return False


def _atom_stride(atom: Atom, var: Var) -> Index | None:
    if atom == var:
        return ONE
    if isinstance(atom, Binary) and atom.op in ("//", "%") and _aligned(atom, var):
        return ZERO if atom.op == "//" else ONE
    return None


def _aligned(atom: Binary, var: Var) -> bool:
    """A vector of the numerator never crosses a multiple of the denominator."""
    divisor = atom.b.constant
    if divisor is None or divisor % ALIGNMENT or atom.a.coefficient(var) != ONE:
        return False
    return all(c % ALIGNMENT == 0 for c in atom.a.without(var).terms.values())
