"""Results far larger than the caches, which are written past them where vectors are whole lines."""

from __future__ import annotations

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import IndexValue, Load
from ...ir.index import ONE, Var
from ...ir.lanes import ALIGNMENT, lane_stride
from ...ir.nodes import Map, Store
from .scope import Scope

LINE = 64  # bytes
MANY_LINES = 16  # of a row: one more that is written twice counts for little


def is_large(buffer: Buffer, scope: Scope) -> bool:
    """Whether the plan writes the result past the caches."""
    return buffer in scope.nontemporal and buffer not in scope.locals


def is_led(node: Map, lanes: Var, scope: Scope) -> bool:
    """Whether the one store of a map goes past the caches from where its vectors are aligned: of rows that are long and
    begin anywhere. What it reads has to be found from any lane on."""
    if len(node.stores) != 1 or scope.whole_lines:
        return False
    (store,) = node.stores
    if not is_large(store.buffer, scope) or store.buffer in scope.gathered or goes_past(store, lanes, 1, scope):
        return False
    length = lanes.extent.constant
    if length is None or length * DTYPES[store.buffer.dtype].size < MANY_LINES * LINE:
        return False
    indices = [x.index for x in store.value.walk() if isinstance(x, Load | IndexValue)]
    return store.index.coefficient(lanes) == ONE and all(i.coefficient(lanes) is not None for i in indices)


def goes_past(store: Store, lanes: Var, woven: int, scope: Scope) -> bool:
    """Whether a store's vectors go past the caches: of a large result, in whole lines.

    woven: elements of each lane that lie side by side.
    """
    if not is_large(store.buffer, scope) or (woven == 1 and lane_stride(store.index, lanes) != ONE):
        return False
    # a vector that is part of a line only is not put past the caches: its line would be written twice
    whole = max(ALIGNMENT, LINE // DTYPES[store.buffer.dtype].size)
    if any(c % whole for c in store.index.without(lanes).terms.values()):
        return False
    length = (lanes.extent * woven).constant
    return length is None or length % whole == 0 or length >= MANY_LINES * whole
