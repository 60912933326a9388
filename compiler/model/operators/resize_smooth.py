"""Linear and cubic resizing: rows are put together first, then pixels are gathered along them, by places and weights
that are folded where the sizes are known, and that the run computes where they are not.

    bilinear     at = (i + 0.5) * step - 0.5        y[i] = x[floor(at)] * (1 - rest) + x[floor(at) + 1] * rest

What would lie outside counts for the pixel at the border. torch's own definitions ask conditions on sizes (is the
result larger than 1?), which do not hold for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["TAPS", "resized_size", "resized_smoothly", "step_of", "tap_weights"]

#: neighbours along a dimension, by mode and number of dimensions
TAPS = {("linear", 1): 2, ("bilinear", 2): 2, ("trilinear", 3): 2, ("bicubic", 2): 4}


def resized_size(size: Any, scale: float) -> Any:
    """int(size * scale), as torch computes the size of a result."""
    return size * int(scale) if scale == int(scale) else torch.sym_int(size * scale)


def step_of(size: Any, out: Any, align: bool, scale: float | None) -> Any:
    """How far two pixels of the result lie apart in the input. align: the outer ones lie on the outer ones."""
    if align:
        return (size - 1) / torch.sym_max(out - 1, 1)
    return 1 / scale if scale else size / out


def resized_smoothly(x: Tensor, taps: int, sizes: Sequence[Any], align: bool, scales: Sequence[float | None]) -> Tensor:
    """Linear (taps 2) or cubic (4) interpolation.

    Args:
        x: floats [batch, channels, ...]; halves are computed with in float32.
        sizes, scales: of the result, for each dimension behind the channels.
    """
    result = x.to(torch.promote_types(x.dtype, torch.float32))
    for axis in range(len(sizes)):
        dim, behind = axis + 2, len(sizes) - 1 - axis
        size = x.shape[dim]
        place = torch.arange(sizes[axis]).to(result.dtype)
        step = step_of(size, sizes[axis], align, scales[axis])
        at = place * step if align else (place + 0.5) * step - 0.5
        at = at.clamp(min=0.0) if taps == 2 else at
        before = at.floor()
        weights = tap_weights(taps, (at - before).clamp(0.0, 1.0))
        first = before.to(torch.int64) + 1 - taps // 2
        pixels = [result.index_select(dim, (first + j).clamp(min=0).clamp(max=size - 1)) for j in range(taps)]
        parts = (p * w[(..., *[None] * behind)] for p, w in zip(pixels, weights, strict=True))
        result = functools.reduce(torch.add, parts)
    return result.to(x.dtype)


def tap_weights(taps: int, rest: Tensor) -> list[Tensor]:
    """The weights of two neighbours or of four, `rest` behind the second-to-last's place (Keys, slope -0.75)."""
    if taps == 2:
        return [1 - rest, rest]
    a = -0.75

    def near(t: Tensor) -> Tensor:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return [far(rest + 1), near(rest), near(1 - rest), far(2 - rest)]
