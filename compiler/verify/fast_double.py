"""Float64 operators where torch's own are slow: convolutions as matrix products.

torch has no fast float64 convolution on CPUs: grouped ones run group by group, others copy patches on one core. Each
function takes the operator's own arguments, and gives None for those that it leaves to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Any = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor | None:
    """Any 2-D convolution in float64: depthwise tap by tap, others as patches times weights."""
    if isinstance(padding, str) or x.dim() != 4 or x.dtype != torch.float64 or not x.numel():
        return None
    stride, padding, dilation = (_pair(v) for v in (stride, padding, dilation))
    if any(padding):
        x = F.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    size = [(x.shape[2 + d] - dilation[d] * (weight.shape[2 + d] - 1) - 1) // stride[d] + 1 for d in range(2)]
    if groups == x.shape[1] == weight.shape[0]:
        y = _depthwise(x, weight, stride, dilation, size)
    else:
        y = _patches(x, weight, stride, dilation, size, groups)
    return y if bias is None else y.add_(bias.reshape(1, -1, 1, 1))


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Any = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor | None:
    if isinstance(padding, str) or x.dim() != 3:
        return None
    wide = [[1, int(v[0])] for v in (stride, dilation)]
    y = conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias, wide[0], [0, int(padding[0])], wide[1], groups)
    return None if y is None else y.squeeze(2)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor | None:
    if transposed or x.dim() not in (3, 4):
        return None
    function = conv2d if x.dim() == 4 else conv1d
    return function(x, weight, bias, stride, padding, dilation, groups)


def _pair(value: Sequence[int]) -> list[int]:
    values = [int(v) for v in value]
    return values * 2 if len(values) == 1 else values


def _tap(x: Tensor, i: int, j: int, stride: Sequence[int], dilation: Sequence[int], size: Sequence[int]) -> Tensor:
    """The elements that tap (i, j) of the filter meets."""
    top, left = i * dilation[0], j * dilation[1]
    rows = slice(top, top + stride[0] * (size[0] - 1) + 1, stride[0])
    columns = slice(left, left + stride[1] * (size[1] - 1) + 1, stride[1])
    return x[:, :, rows, columns]


def _depthwise(
    x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], size: Sequence[int]
) -> Tensor:
    y = x.new_zeros([x.shape[0], x.shape[1], *size])
    for i in range(weight.shape[2]):
        for j in range(weight.shape[3]):
            y.addcmul_(_tap(x, i, j, stride, dilation, size), weight[:, 0, i, j].reshape(1, -1, 1, 1))
    return y


def _patches(
    x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], size: Sequence[int], groups: int
) -> Tensor:
    """[n, g, c * taps, positions] patches under [g, o, c * taps] weights."""
    n, out = x.shape[0], weight.shape[0]
    if weight.shape[2] == weight.shape[3] == 1:
        patches = _tap(x, 0, 0, stride, dilation, size).reshape(n, groups, weight.shape[1], -1)
    else:
        patches = F.unfold(x, tuple(weight.shape[2:]), dilation=tuple(dilation), stride=tuple(stride))
        patches = patches.reshape(n, groups, weight[0].numel(), -1)
    matrix = weight.reshape(groups, out // groups, -1)
    return torch.matmul(matrix, patches).reshape(n, out, *size)


#: operator -> its fast form
FAST: dict[Any, Callable[..., Any]] = {
    aten.conv2d.default: conv2d,
    aten.conv1d.default: conv1d,
    aten.convolution.default: convolution,
}
