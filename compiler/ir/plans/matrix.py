"""The plan of a CPU kernel of products, convolutions or attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixPlan:
    """Nothing is decided here yet."""
