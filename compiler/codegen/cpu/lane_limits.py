"""A place that grows by 1 from lane to lane, compared with what all lanes share: the lanes up to a number.

lt(iota(j), splat(n))      ->      lanes_below(j, n)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.conditions import MIRRORED
from ...ir.expr import Call, Expr, IndexValue

#: the function of lanes up to a limit, and whether it is the others that are asked for
FORMS = {
    "lt": ("lanes_below", False),
    "le": ("lanes_up_to", False),
    "gt": ("lanes_up_to", True),
    "ge": ("lanes_below", True),
}


@dataclass(frozen=True)
class LaneLimit:
    """Lanes whose place is below a limit, or not above it; inverted: the others."""

    function: str
    inverted: bool
    place: IndexValue
    limit: Expr


def lane_limit(e: Call, grows: Callable[[IndexValue], bool], moves: Callable[[Expr], bool]) -> LaneLimit | None:
    """A comparison as lanes up to a limit; None for any other. grows: by 1 from lane to lane; moves: at all."""
    if e.op not in FORMS:
        return None
    a, b = e.args
    for op, place, limit in ((e.op, a, b), (MIRRORED[e.op], b, a)):
        if isinstance(place, IndexValue) and limit.dtype == "i64" and not moves(limit) and grows(place):
            return LaneLimit(*FORMS[op], place, limit)
    return None
