"""Resizing of images with antialiased filters, and of bytes in the fixed-point arithmetic that torch has for them.

A window says which pixels of a line a pixel of the result is made of: the first one, and the weight of each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...model.operators.resize_smooth import resized_size, resized_smoothly, step_of
from .definitions import definition
from .resize_dynamic import resized_in_the_run

aten = torch.ops.aten
Window = tuple[int, list[float]]
Filter = Callable[[float], float]

#: pixels of a window that are added one by one; beside each other in a row they are picked out of vectors up to
#: MOST_NEAR, and more of them take as long as GATHERED times as many of a product
MOST_TAPS, MOST_NEAR, GATHERED = 32, 4, 64


def _triangle(x: float) -> float:
    return max(0.0, 1 - abs(x))


def _cubic(a: float) -> Filter:
    """Keys' cubic convolution with the slope a."""

    def weight(x: float) -> float:
        x = abs(x)
        if x < 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0

    return weight


def _antialiased(taps: int, weight: Filter, size: int, out: int, step: float) -> list[Window]:
    """The filter as wide as a step of the output, its weights divided by their sum."""
    wide = max(step, 1.0)
    support = taps * 0.5 * wide
    windows = []
    for i in range(out):
        centre = step * (i + 0.5)
        first, last = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), size)
        weights = [weight((j - centre + 0.5) / wide) for j in range(first, last)]
        total = sum(weights) or 1.0
        windows.append((first, [w / total for w in weights]))
    return windows


def _interpolated(taps: int, weight: Filter, size: int, out: int, step: float, align: bool) -> list[Window]:
    """The filter between two pixels; what would lie outside counts for the pixel at the border."""
    windows = []
    for i in range(out):
        at = step * i if align else step * (i + 0.5) - 0.5
        if taps == 2:
            at = max(at, 0.0)
        before = min(math.floor(at), size - 1)
        rest = min(max(at - before, 0.0), 1.0)
        first = max(before - taps // 2 + 1, 0)
        weights = [0.0] * (min(before + taps // 2 + 1, size) - first)
        for j in range(taps):
            place = min(max(before - taps // 2 + 1 + j, 0), size - 1)
            weights[place - first] += weight(j + 1 - taps // 2 - rest)
        windows.append((first, weights))
    return windows


def _matrix(windows: Sequence[Window], size: int) -> Tensor:
    rows = [[0.0] * first + weights + [0.0] * (size - first - len(weights)) for first, weights in windows]
    return torch.tensor(rows, dtype=torch.float64)


def _floats_along(x: Tensor, dim: int, windows: Sequence[Window]) -> Tensor:
    """A product with the filter's matrix, or the sum of its pixels where they are few."""
    size, taps = x.shape[dim], max(len(weights) for _, weights in windows)
    last = dim == x.dim() - 1
    if taps > MOST_TAPS or (last and taps > MOST_NEAR and size < GATHERED * taps):
        matrix = _matrix(windows, size).to(x.dtype)
        return torch.matmul(x, matrix.mT) if last else torch.matmul(matrix, x)
    parts = []
    for tap in range(taps):
        places = torch.tensor([first + min(tap, len(weights) - 1) for first, weights in windows])
        factors = torch.tensor([w[tap] if tap < len(w) else 0.0 for _, w in windows], dtype=x.dtype)
        parts.append(x.index_select(dim, places) * factors[(..., *[None] * (x.dim() - dim - 1))])
    return functools.reduce(torch.add, parts)


def _bytes_along(x: Tensor, dim: int, windows: Sequence[Window]) -> Tensor:
    """Weights with as many binary places as 16 bits hold; sums are rounded and kept among the bytes."""
    largest = max((max(weights) for _, weights in windows), default=0.0)
    places = next(p for p in range(23) if p == 22 or int(0.5 + largest * (1 << (p + 1))) >= 1 << 15)
    total: Any = 1 << (places - 1)
    shape = [1] * x.dim()
    shape[dim] = len(windows)
    for tap in range(max(len(weights) for _, weights in windows)):
        scaled = [(w[tap] if tap < len(w) else 0.0) * (1 << places) for _, w in windows]
        factors = torch.tensor([int(w - 0.5 if w < 0 else w + 0.5) for w in scaled], dtype=torch.int32)
        index = torch.tensor([min(first + tap, x.shape[dim] - 1) for first, _ in windows])
        total = total + x.index_select(dim, index).to(torch.int32) * factors.reshape(shape)
    return (total >> places).clamp(0, 255).to(torch.uint8)


def _resized(
    x: Tensor, taps: int, weight: Filter, sizes: Sequence[Any], align: bool, scales: Sequence[Any], antialias: bool
) -> Tensor:
    """Bytes columns first, as torch has it, which matters for them; floats row by row."""
    if not all(isinstance(n, int) for n in (*x.shape[-2:], *sizes)):
        return resized_in_the_run(x, taps, sizes, align, scales, antialias)
    of_bytes = x.dtype == torch.uint8
    result = x if of_bytes else x.to(torch.promote_types(x.dtype, torch.float32))
    for dim in (3, 2) if of_bytes else (2, 3):
        size, out = int(x.shape[dim]), sizes[dim - 2]
        step = step_of(size, out, align, scales[dim - 2])
        if antialias:
            windows = _antialiased(taps, weight, size, out, step)
        else:
            windows = _interpolated(taps, weight, size, out, step, align)
        if not of_bytes:
            result = _floats_along(result, dim, windows)
        elif size != out:
            result = _bytes_along(result, dim, windows)
    return result.to(x.dtype)


def _vector(
    x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> tuple[list[Any], list[float | None]]:
    """Sizes and scales of the overloads "vec"."""
    scales: list[float | None] = list(scale_factors) if scale_factors else [None] * (x.dim() - 2)
    return list(output_size or (resized_size(n, s or 1) for n, s in zip(x.shape[2:], scales, strict=True))), scales


@definition("aten._upsample_bilinear2d_aa.vec")
def bilinear_aa_vec(x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Tensor:
    sizes, scales = _vector(x, output_size, scale_factors)
    return bilinear_aa(x, sizes, align_corners, *scales)


@definition("aten._upsample_bilinear2d_aa.default")
def bilinear_aa(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: Any) -> Tensor:
    return _resized(x, 2, _triangle, output_size, align_corners, (*scales, None, None)[:2], True)


@definition("aten._upsample_bicubic2d_aa.vec")
def bicubic_aa_vec(x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Tensor:
    sizes, scales = _vector(x, output_size, scale_factors)
    return bicubic_aa(x, sizes, align_corners, *scales)


@definition("aten._upsample_bicubic2d_aa.default")
def bicubic_aa(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: Any) -> Tensor:
    return _resized(x, 4, _cubic(-0.5), output_size, align_corners, (*scales, None, None)[:2], True)


def _smooth(operator: Any, x: Tensor, sizes: Sequence[Any], align: bool, *scales: Any) -> Tensor:
    """Bytes in fixed point, floats along one dimension after another."""
    taps, weight = _SMOOTH[operator]
    scales = scales or (None,) * len(sizes)
    if x.dtype == torch.uint8 and len(sizes) == 2:
        return _resized(x, taps, weight, sizes, align, scales, False)
    return resized_smoothly(x, taps, sizes, align, scales)


def _smooth_vec(operator: Any, x: Tensor, output_size: Any, align: bool, scale_factors: Any) -> Tensor:
    sizes, scales = _vector(x, output_size, scale_factors)
    return _smooth(operator, x, sizes, align, *scales)


_SMOOTH: Mapping[Any, tuple[int, Filter]] = {
    aten.upsample_linear1d: (2, _triangle),
    aten.upsample_bilinear2d: (2, _triangle),
    aten.upsample_trilinear3d: (2, _triangle),
    aten.upsample_bicubic2d: (4, _cubic(-0.75)),
}
for _operator in _SMOOTH:
    definition(f"aten.{_operator.__name__}.default")(functools.partial(_smooth, _operator))
    definition(f"aten.{_operator.__name__}.vec")(functools.partial(_smooth_vec, _operator))
