"""Pools with the places of their maxima, and inputs whose windows are of -inf, of padding, of NaN, of equal numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

NAN, INF = float("nan"), float("inf")
Pool = Callable[[torch.Tensor], Any]


def _planes(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 3, 9, 12)


def _cubes(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 1, 6, 6, 9)


def _fractional(x: torch.Tensor) -> Any:
    samples = torch.full((2, 3, 2), 0.4, dtype=x.dtype)
    return F.fractional_max_pool2d(_planes(x), (2, 3), output_size=(4, 5), return_indices=True, _random_samples=samples)


def _unpooled(x: torch.Tensor) -> torch.Tensor:
    y, places = F.max_pool2d(_planes(x), 3, 2, 1, return_indices=True)
    return F.max_unpool2d(y, places, 3, 2, 1, output_size=(9, 12))


POOLS: dict[str, Pool] = {
    "1-d": lambda x: F.max_pool1d(x.reshape(6, 1, 108), 3, 2, 1, return_indices=True),
    "2-d": lambda x: F.max_pool2d(_planes(x), 3, 2, 1, return_indices=True),
    "2-d of one image": lambda x: F.max_pool2d(_planes(x)[0], (2, 3), (2, 1), (1, 0), return_indices=True),
    "2-d dilated": lambda x: F.max_pool2d(_planes(x), 3, 1, 1, dilation=(2, 3), return_indices=True),
    "2-d ceil": lambda x: F.max_pool2d(_planes(x), 4, 3, 2, ceil_mode=True, return_indices=True),
    "3-d": lambda x: F.max_pool3d(_cubes(x), 3, 2, 1, return_indices=True),
    "3-d dilated ceil": lambda x: F.max_pool3d(_cubes(x), 2, 2, 1, dilation=2, ceil_mode=True, return_indices=True),
}
#: eager has adaptive pools of floats alone
OF_FLOATS: dict[str, Pool] = {
    "adaptive 1-d": lambda x: F.adaptive_max_pool1d(x.reshape(6, 1, 108), 7, return_indices=True),
    "adaptive 2-d": lambda x: F.adaptive_max_pool2d(_planes(x), (4, 5), return_indices=True),
    "adaptive 3-d": lambda x: F.adaptive_max_pool3d(_cubes(x), (4, 5, 2), return_indices=True),
}
#: of float32 and float64
WIDE: dict[str, Pool] = {"fractional": _fractional, "unpooled": _unpooled}


def inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    """648 numbers: all the least, NaN here and there among them, few values that are equal often."""
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(-1, 2, (648,), generator=generator).to(dtype)
    if not dtype.is_floating_point:
        return [torch.full((648,), torch.iinfo(dtype).min, dtype=dtype), few]
    spots = torch.rand(648, generator=generator)
    low = torch.full((648,), -INF, dtype=dtype)
    return [low, low.masked_fill(spots < 0.05, 1.0), few.masked_fill(spots < 0.2, NAN).masked_fill(spots > 0.6, -INF)]
