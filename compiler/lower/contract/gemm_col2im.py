"""Convolutions of many channels to few, on CPUs: one product for all taps, whose rows are summed up where they meet.

    p[n, (o, k, l), h, w] = sum_c weight[o, c, k, l] * x[n, c, h, w]
    y[n, o, h, w]         = sum_{k, l} p[n, (o, k, l), h + k, w + l]

A panel of 16 output channels of which a few count would be multiplied for nothing; the product's rows are all taps of
all outputs (kn2row; Anderson et al., "Low-memory GEMM-based convolution algorithms", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.expr import Expr, cast
from ...ir.index import Index, as_index, product
from ...ir.structured import Window
from ...machine.cpu_products import CONVOLUTIONS
from ..core.builder import call
from ..core.context import Context
from ..core.tensor import Shape, Tensor, expand, permute, split_index
from .direct_conv import FEW, Weight, stays_nchw, sum_taps
from .matmul import product_of


def products_pay(ctx: Context, x: Tensor, window: Window, shape: Shape) -> bool:
    """Whether a convolution of x [n, c, ...] to `shape` is one for this module."""
    if ctx.builder.family != "cpu" or x.dtype != "f32":
        return False
    inputs, outputs, taps = ctx.integer(x.shape[1]), ctx.integer(shape[1]), math.prod(window.kernel)
    if taps == 1:
        return _pixels_pay(ctx, x, window, shape)
    if window.groups != 1 or inputs <= FEW or outputs * math.prod(window.stride) > CONVOLUTIONS.strided_columns:
        return False
    return outputs * taps <= inputs or _bytes(x, outputs * taps) <= CONVOLUTIONS.product_bytes


def _pixels_pay(ctx: Context, x: Tensor, window: Window, shape: Shape) -> bool:
    """Whether a 1x1 is a product whose columns are pixels, in NCHW."""
    inputs, outputs = (ctx.integer(n) // window.groups for n in (x.shape[1], shape[1]))
    if window.groups > 1 and (inputs < CONVOLUTIONS.many or outputs < CONVOLUTIONS.many):
        return False
    if inputs <= (FEW if outputs > FEW else CONVOLUTIONS.many) or set(window.stride) != {1} or any(window.pad):
        return False
    return (product(shape[2:]).constant or 0) >= CONVOLUTIONS.pixels and stays_nchw(ctx, x)


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
    """x [n, c, ...] -> `shape` in NCHW, a new tensor or `into`."""
    parts = _products(ctx, x, factor, window.kernel, shape[1], window.groups)
    spatial = len(window.kernel)

    def part(i: list[Index], at: Sequence[Index]) -> Expr:
        return cast(parts.at([i[0], i[1], *i[3 + spatial :], *at]), "f32")

    order = tuple(range(x.rank))
    return sum_taps(ctx, part, x, as_index(1), bias, window, shape, order, into)


def products_side_by_side(
    ctx: Context,
    x: Tensor,
    factor: Weight,
    bias: Tensor | None,
    kernel: Sequence[int],
    outputs: Index,
    groups: int,
) -> Tensor:
    """A transposed convolution whose taps do not meet, as its stride is its kernel: each pixel becomes a block of them.

    y[n, o, s * h + k, t * w + l] = p[n, (o, k, l), h, w]
    """
    spatial = len(kernel)
    parts = _products(ctx, x, factor, kernel, outputs, groups)
    order = [0, 1, *(d for axis in range(spatial) for d in (2 + spatial + axis, 2 + axis))]
    blocks = permute(parts, order)

    def value(i: list[Index]) -> Expr:
        p = cast(blocks.at(i), "f32")
        return p if bias is None else call("add", p, cast(bias.at([i[1]]), "f32"))

    interleaved = ctx.builder.map(blocks.shape, x.dtype, value)
    size = [n * k for n, k in zip(x.shape[2:], kernel, strict=True)]
    return ctx.builder.reshape(interleaved, (x.shape[0], outputs, *size))


def _products(ctx: Context, x: Tensor, factor: Weight, kernel: Sequence[int], outputs: Index, groups: int) -> Tensor:
    """p [n, o, taps ..., pixels ...] of x [n, c, pixels ...]."""
    batch, pixels = x.shape[0], product(x.shape[2:])
    inputs, sizes = x.shape[1] // as_index(groups), tuple(as_index(n) for n in kernel)
    rows = outputs // as_index(groups) * math.prod(kernel)

    def weight(i: list[Index]) -> Expr:
        output, *taps = split_index(i[0], (outputs, *sizes))
        return factor(output, i[1], taps)

    matrix = ctx.builder.map((rows * groups, inputs), "f32", weight)
    parts = (as_index(groups),) if groups > 1 else ()
    flat = ctx.builder.reshape(x, (batch, *parts, inputs, pixels))
    factors = ctx.builder.reshape(matrix, (*parts, rows, inputs))
    products = product_of(ctx, expand(factors, (batch, *parts, rows, inputs)), flat)
    return ctx.builder.reshape(products, (batch, outputs, *sizes, *x.shape[2:]))
