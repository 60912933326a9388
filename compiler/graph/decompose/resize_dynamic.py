"""Antialiased resizes, and those of bytes, between sizes that the run knows: the filter's matrix is computed there.

    y = rows @ (x @ columns^T)      rows [out height, height], columns [out width, width]

Where the sizes are fixed, decompose/resize.py folds the weights and adds few pixels instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["resized_in_the_run"]

#: slopes of Keys' cubic filter: torch's for antialiased images, and for others
_SLOPES = {True: -0.5, False: -0.75}


def resized_in_the_run(
    x: Tensor, taps: int, sizes: Sequence[Any], align: bool, scales: Sequence[float | None], antialias: bool
) -> Tensor:
    """Linear (taps 2) or cubic (4) resizing.

    Args:
        x: floats or bytes [batch, channels, height, width]; halves are computed with in float32, bytes in the fixed
            point arithmetic that torch has for them.
        sizes, scales: of the result's height and width.
        antialias: the filter is as wide as a step of the result where that is more than a pixel.
    """
    matrices = [_matrix(taps, x.shape[2 + d], sizes[d], align, scales[d], antialias) for d in range(2)]
    if x.dtype == torch.uint8:
        return _bytes(_bytes(x, matrices[1], 3), matrices[0], 2)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rows, columns = (m.to(wide.dtype) for m in matrices)
    return _along(_along(wide, columns, 3), rows, 2).to(x.dtype)


def _along(x: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """x @ matrix^T (dim 3) or matrix @ x (dim 2), as products of matrices: torch.matmul asks conditions on sizes."""
    n, channels, height, width = x.shape
    out = matrix.shape[0]
    if dim == 3:
        lines = x.reshape([n * channels * height, width])
        return torch.mm(lines, matrix.mT).reshape([n, channels, height, out])
    planes = x.reshape([n * channels, height, width])
    product = torch.bmm(matrix.unsqueeze(0).expand([n * channels, out, height]), planes)
    return product.reshape([n, channels, out, width])


def _matrix(taps: int, size: Any, out: Any, align: bool, scale: float | None, antialias: bool) -> Tensor:
    """The weights of a line's pixels in each pixel of the result: [out, size], float64."""
    full, wanted = (torch.scalar_tensor(n, dtype=torch.float64) for n in (size, out))
    if align:
        step = (full - 1) / (wanted - 1).clamp(min=1)
    else:
        step = torch.scalar_tensor(1 / scale, dtype=torch.float64) if scale else full / wanted
    pixel = torch.arange(size, dtype=torch.float64)
    result = torch.arange(out, dtype=torch.float64).unsqueeze(1)
    slope = _SLOPES[antialias]
    if antialias:
        wide = step.clamp(min=1.0)
        centre, support = step * (result + 0.5), taps * 0.5 * wide
        first = (centre - support + 0.5).trunc().clamp(min=0)
        last = torch.minimum((centre + support + 0.5).trunc(), full)
        weights = _filter(taps, slope, (pixel - centre + 0.5) / wide)
        weights = torch.where((pixel >= first) & (pixel < last), weights, 0.0)
        total = weights.sum(1, keepdim=True)
        return weights / torch.where(total == 0, 1.0, total)
    at = step * result if align else step * (result + 0.5) - 0.5
    at = at.clamp(min=0) if taps == 2 else at
    before = torch.minimum(at.floor(), full - 1)
    rest = (at - before).clamp(0.0, 1.0)
    weights = torch.zeros_like(pixel * result)
    for k in range(1 - taps // 2, 1 + taps // 2):
        place = torch.minimum((before + k).clamp(min=0), full - 1)
        weights = weights + torch.where(pixel == place, _filter(taps, slope, k - rest), 0.0)
    return weights


def _filter(taps: int, slope: float, x: Tensor) -> Tensor:
    """A triangle, or Keys' cubic convolution."""
    x = x.abs()
    if taps == 2:
        return (1 - x).clamp(min=0)
    near = ((slope + 2) * x - (slope + 3)) * x * x + 1
    far = ((slope * x - 5 * slope) * x + 8 * slope) * x - 4 * slope
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _bytes(x: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """Weights with as many binary places as 16 bits hold; sums are rounded and kept among the bytes.

    The sums are whole numbers far below 2^53, which float64 has exactly.
    """
    largest = matrix.amax()
    fits = [((largest * float(1 << (p + 1)) + 0.5).trunc() < 1 << 15).to(torch.int64) for p in range(22)]
    places = torch.stack(fits).sum()
    scaled = matrix * torch.exp2(places.to(torch.float64))
    weights = (scaled + torch.where(scaled < 0, -0.5, 0.5)).trunc()
    total = _along(x.to(torch.float64), weights, dim)
    half = torch.bitwise_left_shift(torch.ones_like(places), (places - 1).clamp(min=0))
    return torch.bitwise_right_shift(total.to(torch.int64) + half, places).clamp(0, 255).to(torch.uint8)
