"""Results far larger than the caches, which are written past them where vectors are whole lines."""

from __future__ import annotations

from ..ir.dtypes import DTYPES
from ..ir.index import ONE, Var
from ..ir.lanes import ALIGNMENT, lane_stride
from ..ir.nodes import Store
from .scope import Scope

LINE = 64  # bytes
MANY_LINES = 16  # of a row: one more that is written twice counts for little


def goes_past(store: Store, lanes: Var, woven: int, scope: Scope) -> bool:
    """Whether a store's vectors go past the caches: of a large result, in whole lines.

    woven: elements of each lane that lie side by side.
    """
    if scope.stream_from is None or store.buffer in scope.locals:
        return False
    if woven == 1 and lane_stride(store.index, lanes) != ONE:
        return False
    size = (store.buffer.size * DTYPES[store.buffer.dtype].size).constant
    if size is None or size < scope.stream_from:
        return False
    # a vector that is part of a line only is not put past the caches: its line would be written twice
    whole = max(ALIGNMENT, LINE // DTYPES[store.buffer.dtype].size)
    if any(c % whole for c in store.index.without(lanes).terms.values()):
        return False
    length = (lanes.extent * woven).constant
    return length is None or length % whole == 0 or length >= MANY_LINES * whole
