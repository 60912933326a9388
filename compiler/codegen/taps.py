"""Taps of windows that lie two elements apart: pairs of neighbours come out of the same whole vectors.

x[i * 8 + l * 2 + o - 1], o < 3     ->      pairs x[i * 8 + l * 2], x[i * 8 + l * 2 + 1]; tap o - 1
"""

from __future__ import annotations

from ..ir.expr import Load
from ..ir.index import Index, Var, as_index, exact_div, of

APART = 2  # elements from window to window


def tap_of(load: Load) -> Index | None:
    """The tap that a load reads, -1 or more, counted from pairs that lie inside of its buffer; None where pairs do not.

    What is left of its index is even, and so is the buffer's size: where one of a pair may be read, both may.
    """
    odd = [(monomial, c) for monomial, c in load.index.terms.items() if monomial and c % APART]
    if len(odd) != 1 or exact_div(load.buffer.root.size, as_index(APART)) is None:
        return None
    (monomial, factor), *_ = odd
    tap = monomial[0]
    # The tap in front of the pairs takes them from the next one, which has to be in the window.
    if factor != 1 or len(monomial) != 1 or not isinstance(tap, Var) or (tap.extent.constant or 0) < APART:
        return None
    return of(tap) - load.index.terms.get((), 0) % APART
