"""Values rounded to the numbers that a few bits can hold, as training for quantised inference does."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .definitions import definition


@definition("aten.fake_quantize_per_tensor_affine_cachemask")
def fake_quantize(x: Tensor, scale: float, zero_point: int, low: int, high: int) -> tuple[Tensor, Tensor]:
    """The nearest of the numbers (i - zero_point) * scale, low <= i <= high, and whether x lay between them."""
    return _rounded(x, scale, _inverse(scale), zero_point, low, high)


@definition("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_by_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """The same, where `enabled` is not 0; else x as it is."""
    y, mask = _rounded(x, scale, 1 / scale.float(), zero_point.round(), low, high)
    return torch.where(enabled != 0, y, x), mask | (enabled == 0)


@definition("aten.fake_quantize_per_channel_affine_cachemask")
def fake_quantize_channels(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """The same, with a scale and a zero point for each channel; between integers."""
    shape = [-1 if d == axis else 1 for d in range(x.dim())]
    wide, zero = scale.reshape(shape), zero_point.reshape(shape)
    place = x.float() * (1 / wide.float())
    if zero.dtype.is_floating_point:  # which need not be whole: rounded with it, and the result from float64
        whole = torch.round(place + zero).to(torch.int64)
        y = (whole.clamp(low, high).double() - zero.double()) * wide.double()
    else:
        whole = (torch.round(place) + zero).to(torch.int64)
        y = (whole.clamp(low, high) - zero).float() * wide
    return y.to(x.dtype), (whole >= low) & (whole <= high)


def _inverse(scale: float) -> float:
    """1 / scale as torch has it, in float32."""
    return float(np.float32(1) / np.float32(scale))


def _rounded(
    x: Tensor, scale: Tensor | float, inverse: Tensor | float, zero_point: Tensor | int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """In float32: a whole number times 1 / scale is rounded before the zero point is added. NaN is as the lowest.

    Not by integers, which torch takes for channels: there what is too large for one, infinity too, is as the lowest.
    """
    place = torch.round(x.float() * inverse) + zero_point
    y = (torch.fmin(torch.fmax(place, _of(low, place)), _of(high, place)) - zero_point) * scale
    return y.to(x.dtype), (place >= low) & (place <= high)


def _of(value: int, like: Tensor) -> Tensor:
    return torch.full([], value, dtype=like.dtype)
