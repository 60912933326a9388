"""Products of quantised weights: model/operators/quantised.py says what the operators mean."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Expr, cast
from ...ir.index import Index
from ...model.operators import quantised  # noqa: F401  # defines the operators
from ..core.builder import call, number
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor
from .conv_elementwise import direct_convolution
from .quantised_loops import dequantised, float_product, grouped_integer_sums, int_product


@row("aten._int_mm.default")
def int_mm(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    return int_product(ctx, a, b)


@row("mycc.mixed_mm.default")
def mixed_mm(ctx: Context, x: Tensor, w: Tensor) -> Tensor:
    dtype = ctx.result_dtype()
    return float_product(ctx, _as(ctx, x, dtype), _as(ctx, w, dtype))


@row("mycc.grouped_mm.default")
def grouped_mm(
    ctx: Context, x: Tensor, w: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int
) -> Tensor:
    dtype = ctx.result_dtype()
    weight = dequantised(ctx, w, scales, zeros, bits, group, x.shape[-1], dtype)
    return float_product(ctx, _as(ctx, x, dtype), weight)


@row("mycc.grouped_int_mm.default")
def grouped_int_mm(
    ctx: Context,
    a: Tensor,
    a_zeros: Tensor | None,
    w: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bits: int,
    group: int,
) -> Tensor:
    return grouped_integer_sums(ctx, a, a_zeros, w, scales, zeros, bits, group, ctx.result_dtype())


@row("mycc.int_conv.default")
def int_conv(
    ctx: Context,
    x: Tensor,
    w: Tensor,
    x_zero: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    def moved(i: list[Index]) -> Expr:
        return call("sub", cast(x.at(i), "i32"), number(x_zero, "i32"))

    centred = ctx.builder.map(x.shape, "i32", moved)
    return direct_convolution(ctx, centred, w, None, stride, padding, dilation, groups, False)


def _as(ctx: Context, t: Tensor, dtype: str) -> Tensor:
    return t if t.dtype == dtype else ctx.builder.map(t.shape, dtype, t.at)
