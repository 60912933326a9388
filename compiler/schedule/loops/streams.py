"""What kernels read as streams of memory: buffers that the caches have no room for."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load
from ..cost.estimates import number

LEAST_BYTES = 1 << 20  # of a buffer: smaller ones are in the caches


def widest(values: Iterable[Expr]) -> int:
    """Bytes of the widest elements that are read."""
    return max((DTYPES[load.buffer.dtype].size for value in values for load in value.loads), default=1)


def in_memory(load: Load) -> bool:
    """Whether it reads a buffer that the caches have no room for."""
    return number(load.buffer.root.size) * DTYPES[load.buffer.dtype].size >= LEAST_BYTES
