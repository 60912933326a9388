"""What integers stand for in a model that mycc quantises: its weights, and activations of calibrated ranges."""

from __future__ import annotations

import torch
from torch import Tensor

from ..pieces import on_pieces
from .own import own_operator
from .quantised import dequantised


def _fake(values: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(values.shape, dtype=dtype)


@own_operator(
    "dequantize(Tensor values, Tensor scales, Tensor? zeros, int bits, int group, ScalarType dtype) -> Tensor", _fake
)
def dequantize(
    values: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int, dtype: torch.dtype
) -> Tensor:
    """(values - zeros) * scales in `dtype`, in the shape of the values.

    Args:
        values: int8, [N, K] or weights of a convolution [N, C, ...]; of `bits` bits (4: -8 .. 7).
        scales, zeros: [N, groups], one for each `group` values of a row; zeros None: all 0.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    flat, columns = values.flatten(1), values[0].numel()
    result = torch.empty(flat.shape, dtype=dtype)

    def work(own: slice) -> None:
        part = None if zeros is None else zeros[own]
        result[own] = dequantised(flat[own], scales[own], part, bits, group, columns, wide)

    on_pieces(flat, work)
    return result.reshape(values.shape)


@own_operator(
    "dequantize_tensor(Tensor values, float scale, int zero, ScalarType dtype) -> Tensor",
    lambda values, *rest: torch.empty(values.shape, dtype=rest[-1]),
)
def dequantize_tensor(values: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
    """(values - zero) * scale in `dtype`, of int8: activations, by what calibration found."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return ((values.to(wide) - zero) * scale).to(dtype)
