"""Samples of images at places that a grid gives: the places of all corners and their weights first, once for all
channels; then pixels are gathered and added up.

    place[p], weight[p] = f(grid[p])        y[c, p] = sum over corners of x[c, place[p]] * weight[p]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...model.operators.resize_smooth import tap_weights
from .definitions import definition, widened

#: the weight of a corner that lies outside and is not read: no product of weights comes near it
OUTSIDE = -1.0
LINEAR, NEAREST, CUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def _unnormalized(at: Tensor, size: int, align: bool) -> Tensor:
    """From -1 to 1 to pixels; not by way of at + 1, which rounds."""
    half = size * 0.5
    return at * (half - 0.5 if align else half) + (half - 0.5)


def _reflected(at: Tensor, low: int, high: int) -> Tensor:
    """Into [low / 2, high / 2] by reflection at the ends."""
    if low == high:
        return torch.zeros_like(at)
    first, span = low / 2, (high - low) / 2
    away = (at - first).abs()
    turns, rest = torch.floor(away / span), torch.fmod(away, span)
    return torch.where(torch.fmod(turns, 2) == 0, rest + first, span - rest + first)


def _padded(at: Tensor, size: int, padding: int, align: bool, solid: bool) -> Tensor:
    """Where a place outside of the image is looked for in it; NaN at 0 as in torch's 2-d kernels for CPUs, at the other
    end as in those of 3 dimensions (`solid`)."""
    if padding == ZEROS:
        return at
    if padding == REFLECTION:
        at = _reflected(at, 0, 2 * (size - 1)) if align else _reflected(at, -1, 2 * size - 1)
    if solid:
        return torch.where(at < size - 1, at, float(size - 1)).clamp(min=0)
    return torch.where(at > 0, at, 0.0).clamp(max=size - 1)


def _taps(at: Tensor, size: int, mode: int, padding: int, align: bool, solid: bool) -> list[tuple[Tensor, Tensor]]:
    """Pixels along one dimension and their weights; pixels may lie outside."""
    if mode == CUBIC:
        base = at.floor()
        weights = tap_weights(4, at - base)
        return [(_padded(base + (j - 1), size, padding, align, solid), weights[j]) for j in range(4)]
    at = _padded(at, size, padding, align, solid)
    if mode == NEAREST:
        return [(at.round(), torch.ones_like(at))]
    base = at.floor()
    return [(base, base + 1 - at), (base + 1, at - base)]


def _corner(taps: Sequence[tuple[Tensor, Tensor]], sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The place of a corner in the flat image, inside of it whatever the grid says, and its weight or OUTSIDE; in 2
    dimensions a weight of NaN is one."""
    flat: Any = 0
    weight: Any = 1
    inside: Any = True
    for (place, own), size in zip(taps, sizes, strict=True):
        flat = flat * size + torch.where(place > 0, place, 0.0).clamp(max=size - 1).to(torch.int64)
        inside = inside & (place >= 0) & (place < size)
        weight = weight * own
    read = inside | weight.isnan() if len(sizes) == 2 else inside
    return flat, torch.where(read, weight, OUTSIDE)


@definition("aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(x: Tensor, grid: Tensor, mode: int = LINEAR, padding: int = ZEROS, align: bool = False) -> Tensor:
    """Linear, nearest or (2-d) cubic samples of x [n, c, sizes] at grid [n, places, dimensions], -1 to 1 in the image.

    Around the image are zeros, its border or its reflection. Halves are computed with in float32.
    """
    n, c, *sizes = x.shape
    dtype, out = x.dtype, grid.shape[1:-1]
    x, grid = widened(x, grid)
    spots = [_unnormalized(grid[..., -1 - k].flatten(1), size, align) for k, size in enumerate(sizes)]
    taps = [_taps(at, size, mode, padding, align, len(sizes) == 3) for at, size in zip(spots, sizes, strict=True)]
    pixels = x.reshape([n, c, math.prod(sizes)])
    total: Any = 0
    for corner in itertools.product(*taps):
        place, weight = _corner(corner, sizes)
        value = pixels.gather(2, place.unsqueeze(1).expand(-1, c, -1))
        term = torch.where(weight.unsqueeze(1) == OUTSIDE, 0.0, value * weight.unsqueeze(1))
        total = total + term
    return total.reshape([n, c, *out]).to(dtype)
