"""Which kernels need indices of 64 bits."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.bounds import largest
from ...ir.index import Index
from ...ir.nodes import Node

INT32_MAX = 2**31 - 1
#: indices of lanes that the masks switch off may run past the end by this much
SLACK = 1 << 20


def fits_int32(*sizes: Index) -> bool:
    """Whether indices into memory of these many elements are 32-bit integers, those of masked lanes too."""
    tops: Iterable[int | None] = (largest(s) for s in sizes)
    return all(t is not None and t + SLACK <= INT32_MAX for t in tops)


def is_wide(node: Node) -> bool:
    """Whether the memory that a node touches needs indices of 64 bits, at some size."""
    return any(not fits_int32(b.size) for b in (*node.reads(), *node.writes()))
