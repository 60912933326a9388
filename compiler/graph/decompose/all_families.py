"""Our own decompositions, of all families."""

from __future__ import annotations

from . import (
    basic,
    fake_quantize,
    gradients,
    grid_sample,
    indexing,
    layers,
    linalg,
    linear_gradients,
    lookup_gradients,
    margin_losses,
    norm_gradients,
    pool_gradients,
    products,
    quantized,
    recurrent,
    resize,
    signal,
    vision,
)
from .definitions import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS", "FAMILIES"]

FAMILIES = (
    basic,
    gradients,
    indexing,
    layers,
    linalg,
    linear_gradients,
    lookup_gradients,
    margin_losses,
    norm_gradients,
    pool_gradients,
    products,
    quantized,
    recurrent,
    resize,
    fake_quantize,
    grid_sample,
    signal,
    vision,
)
