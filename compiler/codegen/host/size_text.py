"""Prints indices over sizes as C++ of the type mycc::Size (kernels/math/sizes.h), which does not wrap."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.index import ONE, Atom, Index, Size, long_division
from ..cpu.emit import Emitter
from ..cpu.scope import Scope

__all__ = ["LONG", "SizeText"]

LONG = 8  # terms of an index beyond which the sums that it is made of have names


class SizeText(Emitter):
    """Prints indices over sizes. wraps: the sizes are variables of type int64_t, as where a program runs; else they are
    of type Size. sums: long ones, which are variables (`sum_name`): their products are not multiplied out."""

    def __init__(self, wraps: bool = False, sums: Sequence[Index] = ()):
        super().__init__(Scope(frozenset()), None)
        self.wraps = wraps
        self.sums = tuple(sums)

    def index(self, index: Index) -> str:
        if len(index.terms) <= LONG:
            return super().index(index)
        for i, one in enumerate(self.sums):
            factor = long_division(index, one, len(index.terms))
            if factor == ONE:
                return sum_name(i)
            if factor is not None:
                rest = self.index(factor)
                return f"{sum_name(i)} * ({rest})" if " + " in rest or " - " in rest else f"{sum_name(i)} * {rest}"
        return super().index(index)

    def number(self, index: Index) -> str:
        """The number as an int64_t; what is out of range is at the end of the range."""
        text = self.index(index)
        if index.constant is not None:
            return text
        if self.wraps and text.removeprefix("Size(").removesuffix(")").isidentifier():
            return text.removeprefix("Size(").removesuffix(")")
        return f"{text}.value" if text.isidentifier() else f"({text}).value"

    def _atom(self, atom: Atom, vector: bool) -> str:
        text = super()._atom(atom, vector)
        return f"Size({text})" if self.wraps and isinstance(atom, Size) else text

    def _side(self, text: str, side: Index, moving: bool) -> str:
        return text


def sum_name(i: int) -> str:
    """The variable of a long sum."""
    return f"sum_{i}"
