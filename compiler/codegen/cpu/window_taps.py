"""Taps of windows that lie some elements apart: neighbours come out of the same whole vectors.

x[i * 8 + l * 2 + o - 1], o < 3     ->      pairs x[i * 8 + l * 2], x[i * 8 + l * 2 + 1]; tap o - 1
"""

from __future__ import annotations

from ...ir.expr import Load
from ...ir.index import Index, Var, as_index, exact_div, of

PAIR = 2


def tap_of(load: Load, apart: int) -> Index | None:
    """The tap that a load reads, counted from groups of `apart` elements that lie inside of its buffer; None where
    groups do not. -1 is the least tap of pairs, 0 of other groups.

    What is left of its index is a multiple of `apart`, and so is the buffer's size: where one element of a group may be
    read, all of them may.
    """
    odd = [(monomial, c) for monomial, c in load.index.terms.items() if monomial and c % apart]
    if len(odd) != 1 or exact_div(load.buffer.root.size, as_index(apart)) is None:
        return None
    (monomial, factor), *_ = odd
    tap = monomial[0]
    # A tap in front of the pairs takes them from the next one, which has to be in the window.
    if factor != 1 or len(monomial) != 1 or not isinstance(tap, Var) or (tap.extent.constant or 0) < PAIR:
        return None
    first = load.index.terms.get((), 0) % apart
    return of(tap) + (-first if apart == PAIR else first)
