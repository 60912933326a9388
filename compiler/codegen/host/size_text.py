"""Prints indices over sizes as C++ of the type mycc::Size (kernels/math/sizes.h), which does not wrap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache

from ...ir.index import ONE, Atom, Index, Monomial, Size, monomial_div, monomial_product
from ..cpu.emit import Emitter
from ..cpu.scope import Scope

__all__ = ["LONG", "SizeText", "quotient"]

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
            factor = quotient(index, one)
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


@lru_cache(maxsize=4096)
def quotient(a: Index, b: Index) -> Index | None:
    """The polynomial q with q b = a, by long division; None: there is none. Of thousands of terms in a moment."""
    b_terms = sorted(((_Descending(m), m, c) for m, c in b.terms.items()), key=lambda t: t[0])
    _, lead, coefficient = b_terms[0]
    rest = dict(a.terms)
    pending = [(_Descending(m), m) for m in rest]
    heapq.heapify(pending)
    found: dict[Monomial, int] = {}
    while pending:
        monomial = heapq.heappop(pending)[1]
        if not (c := rest.get(monomial, 0)):
            continue
        factor = monomial_div(monomial, lead)
        if factor is None or c % coefficient:
            return None
        found[factor] = c // coefficient
        for _, m, k in b_terms:
            product = monomial_product(factor, m)
            if product not in rest:
                heapq.heappush(pending, (_Descending(product), product))
            rest[product] = rest.get(product, 0) - found[factor] * k
    return Index(found)


class _Descending:
    """A monomial that is less than those of lower degree, and of its degree than those that come before it."""

    __slots__ = ("key",)

    def __init__(self, monomial: Monomial):
        self.key = (len(monomial), tuple(atom.key for atom in monomial))

    def __lt__(self, other: _Descending) -> bool:
        return self.key > other.key
