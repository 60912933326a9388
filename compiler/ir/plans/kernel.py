"""A kernel as it leaves the schedule: the node that it computes, and the plan of how it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..program import AnyNode
from .gpu import GpuPlan
from .loop import LoopPlan
from .matrix import MatrixPlan

Plan: TypeAlias = LoopPlan | MatrixPlan | GpuPlan


@dataclass(frozen=True)
class Kernel:
    """node: what is computed. plan: how; None for a kernel that leaves nothing to decide (a routine, a check)."""

    node: AnyNode
    plan: Plan | None = None
