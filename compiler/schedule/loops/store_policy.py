"""Which results are written by non-temporal stores, past the caches: those far larger than the caches are."""

from __future__ import annotations

from collections.abc import Collection

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Var
from ...ir.lanes import ALIGNMENT, lane_stride
from ...ir.nodes import Map, Nest, Reduce, Scan, Store
from ...ir.plans.loop import Form
from ..cost.estimates import STREAMED_BYTES, is_long

#: bytes of a result that goes past the caches too, where its kernel reads so many that nothing of it would stay there
STREAMED_BESIDE, MANY_READ = 1 << 23, 1 << 25
#: likewise of one that is written in tiles, whose rows lie apart
STREAMED_TILES = 1 << 23
LINE = 64  # bytes
MANY_LINES = 16  # of a row: one more that is written twice counts for little


def nontemporal_results(node: Map | Reduce | Nest | Scan, form: Form) -> tuple[Buffer, ...]:
    """The results of a kernel that are written past the caches, where their vectors are whole lines of memory."""
    if form is Form.SCAN:
        return ()
    if form is Form.TILES:
        return results_from(node, STREAMED_TILES)
    read = sum((buffer.size.constant or 0) * DTYPES[buffer.dtype].size for buffer in node.reads())
    beside = read >= MANY_READ and not isinstance(node, Scan)
    return results_from(node, STREAMED_BESIDE if beside else STREAMED_BYTES)


def results_from(node: Map | Reduce | Nest | Scan, least: int) -> tuple[Buffer, ...]:
    """The results of at least so many bytes."""
    sizes = ((b, (b.size.constant or 0) * DTYPES[b.dtype].size) for b in dict.fromkeys(node.writes()))
    return tuple(b for b, size in sizes if size >= least)


def aligned_lines(node: Map | Reduce | Nest | Scan) -> bool:
    """Whether non-temporal vectors have to be whole lines: of several results that are long to compute, the parts of a
    line come far apart."""
    return isinstance(node, Map) and len(node.stores) > 1 and any(is_long(s.value) for s in node.stores)


def whole_lines(store: Store, lanes: Var, woven: int, nontemporal: Collection[Buffer]) -> bool:
    """Whether a store's vectors go past the caches: of a large result, in whole lines.

    woven: elements of each lane that lie side by side.
    """
    if store.buffer not in nontemporal or (woven == 1 and lane_stride(store.index, lanes) != ONE):
        return False
    # a vector that is part of a line only is not put past the caches: its line would be written twice
    whole = max(ALIGNMENT, LINE // DTYPES[store.buffer.dtype].size)
    if any(c % whole for c in store.index.without(lanes).terms.values()):
        return False
    length = (lanes.extent * woven).constant
    return length is None or length % whole == 0 or length >= MANY_LINES * whole
