"""Convolutions of many channels to few, on CPUs: one product for all taps, whose rows are summed up where they meet.

    p[n, (o, k, l), h, w] = sum_c weight[o, c, k, l] * x[n, c, h, w]
    y[n, o, h, w]         = sum_{k, l} p[n, (o, k, l), h + k, w + l]

A panel of 16 output channels of which a few count would be multiplied for nothing; the product's rows are all taps of
all outputs (kn2row; Anderson et al., "Low-memory GEMM-based convolution algorithms", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.expr import Expr, cast
from ..ir.index import Index, as_index
from ..ir.structured import Window
from .context import Context
from .matmul import product_of
from .tap_sums import FEW, Weight, fold_taps
from .tensor import Shape, Tensor, expand, split_index

#: outputs times the pixels of which a stride keeps one, of the 16 columns that panels multiply for it
MOST_COLUMNS = 6
MOST_BYTES = 32 << 20  # of products that take more memory than the operand


def products_pay(ctx: Context, x: Tensor, window: Window, shape: Shape) -> bool:
    """Whether a convolution of x [n, c, ...] to `shape` is one for this module."""
    if ctx.builder.family != "cpu" or x.dtype != "f32" or window.groups != 1:
        return False
    inputs, outputs, taps = ctx.integer(x.shape[1]), ctx.integer(shape[1]), math.prod(window.kernel)
    if taps == 1 or inputs <= FEW or outputs * math.prod(window.stride) > MOST_COLUMNS:
        return False
    return outputs * taps <= inputs or _bytes(x, outputs * taps) <= MOST_BYTES


def _bytes(x: Tensor, rows: int) -> float:
    """Of so many rows of products of all pixels; infinite where a size comes with the call."""
    sizes = [n.constant for n in (x.shape[0], *x.shape[2:])]
    return math.prod(math.inf if n is None else n for n in sizes) * rows * 4


def products_of_taps(
    ctx: Context,
    x: Tensor,
    factor: Weight,
    bias: Tensor | None,
    window: Window,
    shape: Shape,
    into: Tensor | None = None,
) -> Tensor:
    """x [n, c, ...] -> `shape` in planes, a new tensor or `into`."""
    outputs, inputs = shape[1], x.shape[1]
    sizes = tuple(as_index(n) for n in window.kernel)
    rows = outputs * math.prod(window.kernel)

    def weight(i: list[Index]) -> Expr:
        output, *taps = split_index(i[0], (outputs, *sizes))
        return factor(output, i[1], taps)

    matrix = ctx.builder.map((rows, inputs), "f32", weight)
    pixels = as_index(1)
    for n in x.shape[2:]:
        pixels = pixels * n
    flat = ctx.builder.reshape(x, (x.shape[0], inputs, pixels))
    products = product_of(ctx, expand(matrix, (x.shape[0], rows, inputs)), flat)
    parts = ctx.builder.reshape(products, (x.shape[0], outputs, *sizes, *x.shape[2:]))
    spatial = len(window.kernel)

    def part(i: list[Index], at: Sequence[Index]) -> Expr:
        return cast(parts.at([i[0], i[1], *i[3 + spatial :], *at]), "f32")

    order = tuple(range(x.rank))
    return fold_taps(ctx, part, x, as_index(1), bias, window, shape, order, into)
