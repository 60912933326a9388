"""Fixed sizes become arguments of structured kernels, so that layers of other shapes share one function.

    y0[m*256 + column]      ->      y0[m*c0 + column], c0 = 256 passed by the host program

Costs nothing there: the hot loops are in the micro-kernels, which take their sizes as arguments in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.expr import Expr, IndexValue, Load, rewrite
from ...ir.index import ONE, Index, as_index, of
from ...ir.nodes import Store
from .scope import Argument


@dataclass
class Lifted:
    """The names of the numbers that were made arguments."""

    _names: dict[int, str] = field(default_factory=dict)

    def argument(self, name: str, value: Index) -> Index:
        """`value` as an argument called `name`, when it is a number."""
        number = value.constant
        if number is None:
            return value
        return of(Argument(name, number, number))

    def index(self, index: Index) -> Index:
        """The index with every factor above 1 an argument; quotients keep theirs, as lanes depend on them."""
        total = as_index(0)
        for monomial, c in index.terms.items():
            factor = self._size(abs(c)) if abs(c) > 1 else ONE
            total = total + Index({monomial: 1 if c > 0 else -1}) * factor
        return total

    def store(self, store: Store) -> Store:
        return Store(store.buffer, self.index(store.index), self.expression(store.value))

    def expression(self, e: Expr) -> Expr:
        def leaf(x: Expr) -> Expr | None:
            if isinstance(x, Load):
                return Load(x.buffer, self.index(x.index))
            if isinstance(x, IndexValue):
                return IndexValue(self.index(x.index))
            return None

        return rewrite(e, leaf)

    def _size(self, number: int) -> Index:
        name = self._names.setdefault(number, f"c{len(self._names)}")
        return of(Argument(name, number, number))
