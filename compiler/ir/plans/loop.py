"""The plan of a CPU kernel of loops: maps, reductions, scans and nests."""

from __future__ import annotations

from dataclasses import dataclass

from ..buffers import Buffer


@dataclass(frozen=True)
class LoopPlan:
    """How the loops of a kernel run.

    nontemporal: results so large that they are written past the caches, by non-temporal stores where vectors are whole
    lines of memory.
    """

    nontemporal: tuple[Buffer, ...] = ()
