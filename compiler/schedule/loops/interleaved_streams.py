"""Which buffers a kernel reads as streams from memory: those that are too large for the caches."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load
from ...machine.cpu import STREAM
from ..cost.estimates import number


def widest(values: Iterable[Expr]) -> int:
    """Bytes of the widest elements that are read."""
    return max((DTYPES[load.buffer.dtype].size for value in values for load in value.loads), default=1)


def in_memory(load: Load) -> bool:
    """Whether it reads a buffer that the caches have no room for."""
    return number(load.buffer.root.size) * DTYPES[load.buffer.dtype].size >= STREAM
