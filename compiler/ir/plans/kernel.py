"""A kernel as it leaves the schedule: the node that it computes, and the plan of how it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..buffers import Buffer
from ..program import AnyNode
from .gpu import GpuPlan
from .loop import LoopPlan, UpdatesPlan
from .matrix import MatrixPlan

Plan: TypeAlias = LoopPlan | UpdatesPlan | MatrixPlan | GpuPlan


@dataclass(frozen=True)
class Kernel:
    """node: what is computed, in the loops that the plan speaks of. plan: how; None for a kernel that leaves nothing to
    decide (a routine, a check). base_offsets: elements of a buffer in front of those that the node's indices count
    from.
    """

    node: AnyNode
    plan: Plan | None = None
    base_offsets: tuple[tuple[Buffer, int], ...] = ()
