"""torchvision's deformable convolution as gathers and products; its other operators are in lower/indexing/vision.py."""

from __future__ import annotations

import torch
from torch import Tensor

from .definitions import definition


@definition("torchvision.deform_conv2d")
def deform_conv2d(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Deformable convolution (Dai et al., 2017; with a mask Zhu et al., 2019): the pixels that a kernel multiplies are
    sampled at its taps moved by `offset`, bilinearly, zero outside.

        columns[c, tap, place] = x[c, place * stride - pad + tap * dilation + offset[tap, place]] * mask[tap, place]
        y = weight @ columns + bias
    """
    n, c, h, w = x.shape
    out_c, _, kernel_h, kernel_w = weight.shape
    out_h, out_w = offset.shape[-2:]
    taps = kernel_h * kernel_w
    moves = offset.reshape([n, offset_groups, taps, 2, out_h, out_w])
    rows = (torch.arange(kernel_h) * dilation_h).reshape([-1, 1]).expand([kernel_h, kernel_w]).reshape([taps, 1, 1])
    columns = (torch.arange(kernel_w) * dilation_w).expand([kernel_h, kernel_w]).reshape([taps, 1, 1])
    at_y = rows + (torch.arange(out_h) * stride_h - pad_h).reshape([out_h, 1]) + moves[:, :, :, 0]
    at_x = columns + (torch.arange(out_w) * stride_w - pad_w) + moves[:, :, :, 1]
    pixels = _sampled(x.reshape([n, offset_groups, c // offset_groups, h * w]), at_y, at_x, h, w)
    if use_mask:
        pixels = pixels * mask.reshape([n, offset_groups, 1, taps, out_h * out_w])
    operand = pixels.reshape([n, groups, c // groups * taps, out_h * out_w])
    y = torch.matmul(weight.reshape([groups, out_c // groups, c // groups * taps]), operand)
    return y.reshape([n, out_c, out_h, out_w]) + bias.reshape([out_c, 1, 1])


def _sampled(x: Tensor, at_y: Tensor, at_x: Tensor, h: int, w: int) -> Tensor:
    """Bilinear samples of planes: [batch, groups, channels, taps, places].

    x: [batch, groups, channels, h * w]. at_y, at_x: [batch, groups, taps, out_h, out_w], in pixels.
    """
    n, groups, channels, _ = x.shape
    taps = at_y.shape[2]
    inside = (at_y > -1) & (at_y < h) & (at_x > -1) & (at_x < w)
    top, left = at_y.floor(), at_x.floor()
    below, right = at_y - top, at_x - left
    result = None
    for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
        row, column = top + dy, left + dx
        found = inside & (row >= 0) & (row <= h - 1) & (column >= 0) & (column <= w - 1)
        share = (below if dy else 1 - below) * (right if dx else 1 - right)
        place = torch.where(found, row * w + column, 0).to(torch.int64).reshape([n, groups, 1, -1])
        value = x.gather(-1, place.expand([n, groups, channels, place.shape[-1]]))
        part = torch.where(found, share, 0).reshape([n, groups, 1, -1]) * value
        result = part if result is None else result + part
    assert result is not None
    return result.reshape([n, groups, channels, taps, -1])
