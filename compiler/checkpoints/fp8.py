"""Weights of the method "fp8": float8_e4m3fn [N, K] with a scale for each block of weight_block_size, or one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .weights import PackedWeight, refused

__all__ = ["read_fp8"]


def read_fp8(
    layer: str, shape: tuple[int, int], get: Callable[[str], Tensor], config: Mapping[str, Any]
) -> PackedWeight:
    """A layer's weight. Its activations stay floats. Raises CompileError for tensors that do not fit."""
    values, (rows, columns) = get("weight"), shape
    if values.dtype != torch.float8_e4m3fn or tuple(values.shape) != shape:
        raise refused(layer, f"its numbers are {values.dtype} {list(values.shape)}, not float8_e4m3fn {list(shape)}")
    try:
        scales = get("weight_scale_inv")
    except KeyError:
        scales = get("weight_scale")
    if scales.numel() == 1:
        return PackedWeight(values, scales.reshape(1, 1).expand(rows, 1).contiguous(), None, 8, columns)
    high, wide = config.get("weight_block_size") or (128, 128)
    if tuple(scales.shape) != (-(-rows // high), -(-columns // wide)) or columns % wide:
        raise refused(layer, f"blocks of {high} x {wide} with {list(scales.shape)} scales do not fit {list(shape)}")
    return PackedWeight(values, scales.repeat_interleave(high, 0)[:rows].contiguous(), None, 8, wide)
