"""Whether an index names another element at each iteration of its loops.

i*4 + j      over i:3, j:4       yes
i + j        over i:3, j:4       no: [0, 1] and [1, 0] meet
<k[i]>*4     over i:3            unknown, thus no: k may hold duplicates
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .index import ONE, ZERO, Atom, Binary, Index, Var, floor_div, of
from .proofs import nonnegative_by_cases

__all__ = ["injective"]

_MOST_DIGITS = 8  # loops and parts of loops; an order of their strides is searched for


@dataclass(frozen=True)
class _Digit:
    """(var // low) % count; count None: without remainder."""

    var: Var
    low: Index = ONE
    count: Index | None = None

    @property
    def extent(self) -> Index:
        return self.count if self.count is not None else floor_div(self.var.extent + self.low - 1, self.low)


def injective(index: Index, loops: Iterable[Var]) -> bool:
    """True when it is proved that no two iterations of the loops have the same index."""
    moving = {v for v in loops if v.extent != ONE}
    if any(v.extent == ZERO for v in moving):
        return True
    strides = _strides(index, moving)
    if strides is None or len(strides) > _MOST_DIGITS:
        return False
    return all(_determined(v, [d for d in strides if d.var == v]) for v in moving) and _apart(
        [(stride, d.extent) for d, stride in strides.items()], ZERO
    )


def _strides(index: Index, moving: set[Var]) -> dict[_Digit, Index] | None:
    """The index as a sum of digits of loops, each times its stride, and what does not move; None if it is no such."""
    strides: dict[_Digit, Index] = {}
    for monomial, factor in index.terms.items():
        atoms = [a for a in monomial if of(a).vars() & moving]
        if not atoms:
            continue
        digit = _digit(atoms[0], moving) if len(atoms) == 1 else None
        if digit is None:
            return None
        rest = Index({tuple(a for a in monomial if a is not atoms[0]): factor})
        strides[digit] = strides.get(digit, ZERO) + rest
    return strides


def _digit(atom: Atom, moving: set[Var]) -> _Digit | None:
    if isinstance(atom, Var):
        return _Digit(atom)
    if not isinstance(atom, Binary) or atom.op not in ("//", "%") or atom.b.vars() & moving:
        return None
    inner = _only_atom(atom.a)
    within = _digit(inner, moving) if inner is not None else None
    if within is None or within.count is not None:
        return None
    if atom.op == "//":
        return _Digit(within.var, within.low * atom.b)
    return _Digit(within.var, within.low, atom.b)


def _only_atom(index: Index) -> Atom | None:
    if len(index.terms) != 1:
        return None
    ((monomial, factor),) = index.terms.items()
    return monomial[0] if factor == 1 and len(monomial) == 1 else None


def _determined(var: Var, digits: Sequence[_Digit]) -> bool:
    """Whether the digits say which iteration of the loop it is."""
    low = ONE
    for _ in digits:
        if nonnegative_by_cases(low - var.extent):
            return True
        found = [d for d in digits if d.low == low]
        if any(d.count is None for d in found):
            return True
        if not found:
            return False
        low = low * (found[0].count or ONE)
    return nonnegative_by_cases(low - var.extent)


def _apart(digits: Sequence[tuple[Index, Index]], span: Index) -> bool:
    """Whether sums of digit * stride are all different; span: how far the digits that are placed already reach."""
    if not digits:
        return True
    for i, (stride, extent) in enumerate(digits):
        for step in (stride, -stride):  # an index that runs backwards names as many elements
            if nonnegative_by_cases(step - span - 1):
                left = [*digits[:i], *digits[i + 1 :]]
                if _apart(left, span + step * (extent - 1)):
                    return True
    return False
