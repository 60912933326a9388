"""Our own decompositions, of all families."""

from __future__ import annotations

from . import (
    decompositions,
    decompositions_gradients,
    decompositions_indexing,
    decompositions_layers,
    decompositions_linalg,
    decompositions_margins,
    decompositions_products,
    decompositions_recurrent,
    decompositions_resize,
    decompositions_rounding,
    decompositions_sampling,
    decompositions_signal,
    decompositions_vision,
)
from .definitions import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS", "FAMILIES"]

FAMILIES = (
    decompositions,
    decompositions_gradients,
    decompositions_indexing,
    decompositions_layers,
    decompositions_linalg,
    decompositions_margins,
    decompositions_products,
    decompositions_recurrent,
    decompositions_resize,
    decompositions_rounding,
    decompositions_sampling,
    decompositions_signal,
    decompositions_vision,
)
