"""Prints indices over sizes as C++ of the type mycc::Size (kernels/math/sizes.h), which does not wrap."""

from __future__ import annotations

from ...ir.index import Atom, Index, Size
from ..cpu.emit import Emitter
from ..cpu.scope import Scope

__all__ = ["SizeText"]


class SizeText(Emitter):
    """Prints indices over sizes. wraps: the sizes are variables of type int64_t, as where a program runs; else they are
    of type Size."""

    def __init__(self, wraps: bool = False):
        super().__init__(Scope(frozenset()), None)
        self.wraps = wraps

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
