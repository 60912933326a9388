"""Weights in the layouts of GPTQ and AWQ, which pack numbers of 4 or 8 bits into int32.

    GPTQ   qweight [K * bits / 32, N] along K, qzeros [groups, N * bits / 32] along N, scales [groups, N], g_idx [K]
    AWQ    qweight [K, N / 8] and qzeros [groups, N / 8] along N, eight columns in the order 0 2 4 6 1 3 5 7

w = (q - zero) * scale. GPTQ's first form stores its zeros less 1, in one subtraction from the packed int32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .weights import PackedWeight, by_groups, centred, nibbles, refused

__all__ = ["AWQ_ORDER", "read_awq", "read_gptq"]

#: the column of eight whose number is in the i-th four bits of an int32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_ONES = {4: 0x11111111, 8: 0x01010101}


def read_gptq(
    layer: str, shape: tuple[int, int], get: Callable[[str], Tensor], config: Mapping[str, Any]
) -> PackedWeight:
    """A layer's weight. config: quantization_config. Raises CompileError for tensors that do not fit."""
    rows, columns = shape
    packed, low, scales = _whole(layer, get("qweight")), _whole(layer, get("qzeros")), get("scales")
    bits = packed.shape[0] * 32 // columns
    if bits not in _ONES or packed.shape != (columns * bits // 32, rows):
        raise refused(layer, f"qweight is {_sizes(packed)} for {rows} rows of {columns}, and 4 or 8 bits are taken")
    groups = scales.shape[0]
    _same(layer, "scales", scales, (groups, rows))
    _same(layer, "qzeros", low, (groups, rows * bits // 32))
    if config.get("checkpoint_format", "gptq") != "gptq_v2":
        low = low + _ONES[bits]
    half = 1 << (bits - 1)
    values = centred(nibbles(packed.t(), bits), bits)
    order, group = by_groups(layer, _group_of(get, columns, groups), groups)
    if order is not None:
        values = values[:, order]
    zeros = nibbles(low, bits).t().to(torch.int16) - half
    return PackedWeight(values, scales.t().contiguous(), zeros.contiguous(), bits, group, order)


def read_awq(layer: str, shape: tuple[int, int], get: Callable[[str], Tensor], _: Mapping[str, Any]) -> PackedWeight:
    """A layer's weight in the layout "gemm". Raises CompileError for tensors that do not fit."""
    rows, columns = shape
    packed, low, scales = _whole(layer, get("qweight")), _whole(layer, get("qzeros")), get("scales")
    groups = scales.shape[0]
    _same(layer, "qweight", packed, (columns, rows // 8))
    _same(layer, "qzeros", low, (groups, rows // 8))
    _same(layer, "scales", scales, (groups, rows))
    if columns % groups:
        raise refused(layer, f"{groups} groups do not divide {columns} columns")
    values = centred(_in_order(packed).t().contiguous(), 4)
    zeros = _in_order(low).t().to(torch.int8) - 8
    return PackedWeight(values, scales.t().contiguous(), zeros.contiguous(), 4, columns // groups)


def _in_order(packed: Tensor) -> Tensor:
    """[..., n / 8] as uint8 [..., n]."""
    places = torch.tensor([AWQ_ORDER.index(i) for i in range(8)])
    return nibbles(packed, 4).unflatten(-1, (-1, 8))[..., places].flatten(-2)


def _group_of(get: Callable[[str], Tensor], columns: int, groups: int) -> Tensor:
    try:
        return get("g_idx")
    except KeyError:
        return torch.arange(columns) // max(1, columns // groups)


def _whole(layer: str, packed: Tensor) -> Tensor:
    if packed.dtype != torch.int32 or packed.dim() != 2:
        raise refused(layer, f"its tensors are {packed.dtype}{_sizes(packed)}, and int32 matrices are taken")
    return packed


def _same(layer: str, name: str, tensor: Tensor, wanted: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != wanted:
        raise refused(layer, f"{name} is {_sizes(tensor)}, not {list(wanted)}", "Is the layout another one?")


def _sizes(tensor: Tensor) -> str:
    return str(list(tensor.shape))
