"""Our own decompositions, of all families."""

from __future__ import annotations

from . import (
    decompositions_indexing,
    decompositions_layers,
    decompositions_linalg,
    decompositions_resize,
    decompositions_sampling,
    decompositions_signal,
)
from .decompositions import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS", "FAMILIES"]

FAMILIES = (
    decompositions_indexing,
    decompositions_layers,
    decompositions_linalg,
    decompositions_resize,
    decompositions_sampling,
    decompositions_signal,
)
