"""Results far larger than the caches, which are written past them where vectors are whole lines."""

from __future__ import annotations

from ...ir.buffers import Buffer
from ...ir.index import Var
from ...ir.nodes import Store
from ...schedule.loops.store_policy import whole_lines
from .scope import Scope


def is_large(buffer: Buffer, scope: Scope) -> bool:
    """Whether the plan writes the result by non-temporal stores."""
    return buffer in scope.nontemporal and buffer not in scope.locals


def is_nontemporal(store: Store, lanes: Var, interleaved: int, scope: Scope) -> bool:
    """Whether a store's vectors are written by non-temporal stores; interleaved: elements of each lane that lie side by
    side."""
    return store.buffer not in scope.locals and whole_lines(store, lanes, interleaved, scope.nontemporal)
