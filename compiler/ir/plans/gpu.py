"""The plan of a GPU kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuPlan:
    """Nothing is decided here yet."""
