"""Numbers rounded to a few bits and back: torch's `quantized_decomposed` operators, which PT2E writes into a graph, and
mycc's own.

    q = clamp(round(x * (1 / scale)) + zero_point, low, high)        x = (q - zero_point) * scale

Ties go to the even number. The inverse of a scale is rounded to float32 before it is multiplied with, as in torch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .definitions import definition, widened

_NAME = "quantized_decomposed"


@definition(f"{_NAME}.quantize_per_tensor.default")
def quantize_tensor(x: Tensor, scale: float, zero: int, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """One scale, a number."""
    (x,) = widened(x)
    return torch.clamp(torch.round(x * float(np.float32(1.0 / scale))) + zero, low, high).to(dtype)


@definition(f"{_NAME}.quantize_per_tensor.tensor")
def quantize_by_tensors(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """One scale, found by the graph."""
    (x,) = widened(x)
    place = torch.round(x * _inverse(scale).reshape([])) + _single(zero)
    return torch.clamp(place, low, high).to(dtype)


@definition(f"{_NAME}.quantize_per_channel")
def quantize_channels(
    x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """A scale for each index of a dimension."""
    (x,) = widened(x)
    inverse, zeros = _along(x, 1.0 / scales.float(), axis), _along(x, zeros, axis).float()
    return torch.clamp(torch.round(x * inverse) + zeros, low, high).to(dtype)


@definition(f"{_NAME}.quantize_per_token")
def quantize_tokens(x: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """A scale for each row. The zero point is added before the sum is rounded, in the type of the scales."""
    return torch.clamp(torch.round(x * (1.0 / scales) + zeros), low, high).to(dtype)


@definition(f"{_NAME}.dequantize_per_tensor.default")
def dequantize_tensor(
    q: Tensor, scale: float, zero: int, low: int, high: int, dtype: torch.dtype, *, out_dtype: torch.dtype | None = None
) -> Tensor:
    """One scale, a number."""
    return (q.to(out_dtype or torch.float32) - zero) * scale


@definition(f"{_NAME}.dequantize_per_tensor.tensor")
def dequantize_by_tensors(
    q: Tensor,
    scale: Tensor,
    zero: Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """One scale, found by the graph."""
    wide = out_dtype or torch.float32
    return (q.to(wide) - _single(zero).to(wide)) * scale.reshape([]).to(wide)


@definition(f"{_NAME}.dequantize_per_channel")
def dequantize_channels(
    q: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """A scale for each index of a dimension."""
    wide = q.to(scales.dtype)
    wide = wide if zeros is None else wide - _along(q, zeros, axis).to(scales.dtype)
    return (wide * _along(q, scales, axis)).to(out_dtype or torch.float32)


@definition(f"{_NAME}.dequantize_per_token")
def dequantize_tokens(
    q: Tensor,
    scales: Tensor,
    zeros: Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A scale for each row."""
    return ((q - zeros) * scales).to(output_dtype)


@definition(f"{_NAME}.dequantize_per_channel_group")
def dequantize_groups(
    q: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    low: int,
    high: int,
    dtype: torch.dtype,
    group: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A scale for each `group` numbers of a row."""
    wide = q.reshape(*scales.shape, -1).to(scales.dtype)
    wide = wide if zeros is None else wide - zeros.unsqueeze(-1).to(scales.dtype)
    return (wide * scales.unsqueeze(-1)).reshape(q.shape).to(output_dtype)


@definition("mycc.dequantize")
def dequantize_weight(
    values: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int, dtype: torch.dtype
) -> Tensor:
    """A scale for each `group` numbers of a row, of a weight of any shape."""
    wide = values.reshape(*scales.shape, -1).float()
    wide = wide if zeros is None else wide - zeros.unsqueeze(-1).float()
    return (wide * scales.unsqueeze(-1).float()).reshape(values.shape).to(dtype)


@definition("mycc.dequantize_tensor")
def dequantize_activations(values: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
    """One scale, a number."""
    return ((values.float() - zero) * scale).to(dtype)


@definition(f"{_NAME}.choose_qparams.tensor")
def choose_parameters(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scale (float64) and zero point (int64) by which the range of x, with 0 in it, becomes low to high."""
    least, most = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
    scale = ((most - least) / float(high - low)).clamp(min=eps)
    zero = (low - torch.round(least / scale).to(torch.int32)).clamp(low, high)
    return scale.to(torch.float64).reshape([1]), zero.to(torch.int64).reshape([1])


@definition(f"{_NAME}.choose_qparams_symmetric.tensor")
def choose_symmetric(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same with a range as long on both sides of 0."""
    most = torch.maximum(-x.amin().clamp(max=0.0), x.amax().clamp(min=0.0))
    scale = (most / (float(high - low) / 2)).clamp(min=eps)
    zero = torch.full([1], 128 if dtype == torch.uint8 else 0, dtype=torch.int64)
    return scale.to(torch.float64).reshape([1]), zero


@definition(f"{_NAME}.choose_qparams_per_token")
def choose_by_tokens(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A scale for each row; zero points 0."""
    scales = x.abs().amax(-1, True)
    scales = (scales.float() if scales.dtype == torch.float16 else scales).clamp(min=1e-5) / 127
    return scales, torch.zeros_like(scales)


def _inverse(scale: Tensor) -> Tensor:
    return (1.0 / scale.to(torch.float64)).to(torch.float32)


def _single(zero: Tensor) -> Tensor:
    return zero.reshape([]).to(torch.float32)


def _along(x: Tensor, values: Tensor, axis: int) -> Tensor:
    """Values for the indices of a dimension, in a shape that is broadcast over the others."""
    return values.reshape([-1 if d == axis % x.dim() else 1 for d in range(x.dim())])
