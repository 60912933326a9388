"""Which results are written by non-temporal stores, past the caches: those far larger than the caches are."""

from __future__ import annotations

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.nodes import Map, Nest, Reduce, Scan
from ..cost.estimates import STREAMED_BYTES

#: bytes of a result that goes past the caches too, where its kernel reads so many that nothing of it would stay there
STREAMED_BESIDE, MANY_READ = 1 << 23, 1 << 25


def nontemporal_results(node: Map | Reduce | Nest | Scan) -> tuple[Buffer, ...]:
    """The results of a kernel that are written past the caches, where their vectors are whole lines of memory."""
    read = sum((buffer.size.constant or 0) * DTYPES[buffer.dtype].size for buffer in node.reads())
    beside = read >= MANY_READ and not isinstance(node, Scan)
    return results_from(node, STREAMED_BESIDE if beside else STREAMED_BYTES)


def results_from(node: Map | Reduce | Nest | Scan, least: int) -> tuple[Buffer, ...]:
    """The results of at least so many bytes."""
    sizes = ((b, (b.size.constant or 0) * DTYPES[b.dtype].size) for b in dict.fromkeys(node.writes()))
    return tuple(b for b, size in sizes if size >= least)
