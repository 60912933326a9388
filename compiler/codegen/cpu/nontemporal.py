"""Results far larger than the caches, which are written past them where vectors are whole lines."""

from __future__ import annotations

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import IndexValue, Load
from ...ir.index import ONE, Var
from ...ir.nodes import Map, Store
from ...schedule.loops.store_policy import LINE, MANY_LINES, whole_lines
from .scope import Scope


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
    """Whether a store's vectors go past the caches; woven: elements of each lane that lie side by side."""
    return store.buffer not in scope.locals and whole_lines(store, lanes, woven, scope.nontemporal)
