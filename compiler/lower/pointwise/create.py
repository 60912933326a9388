"""Creation of tensors: generated values that need no memory until somebody wants them there."""

from __future__ import annotations

from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import Index
from ..core.builder import call, compare, number, size_value, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor


def filled(shape: tuple[Index, ...], dtype: str, value: Any) -> Tensor:
    """A tensor all of whose elements are `value`: a number, a size, or a tensor of one element. It takes no memory."""
    if isinstance(value, Tensor):  # a number that the run finds
        return Tensor(shape, dtype, make=lambda _: cast(value.at([]), dtype))
    element = size_value(value, dtype) if isinstance(value, Index) else number(value, dtype)
    return Tensor(shape, dtype, make=lambda _: element)


@row("aten.full.default", "aten.full_like.default")
def full(ctx: Context, _: Any, value: Any, *__: Any, **___: Any) -> Tensor:
    return filled(ctx.result_shape(), ctx.result_dtype(), value)


@row("aten.new_full.default")
def new_full(ctx: Context, _: Any, size: Any, value: Any, **__: Any) -> Tensor:
    return filled(ctx.result_shape(), ctx.result_dtype(), value)


@row(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.new_empty.default",
)
def zeros(ctx: Context, *_: Any, **__: Any) -> Tensor:
    return filled(ctx.result_shape(), ctx.result_dtype(), 0)


@row("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(ctx: Context, *_: Any, **__: Any) -> Tensor:
    return filled(ctx.result_shape(), ctx.result_dtype(), 1)


@row("aten.scalar_tensor.default")
def scalar_tensor(ctx: Context, value: Any, **_: Any) -> Tensor:
    return filled((), ctx.result_dtype(), value)


@row("aten.arange.default")
def arange(ctx: Context, end: Any, **_: Any) -> Tensor:
    return _range(ctx, 0, 1)


@row("aten.arange.start")
def arange_start(ctx: Context, start: Any, end: Any, **_: Any) -> Tensor:
    return _range(ctx, start, 1)


@row("aten.arange.start_step")
def arange_step(ctx: Context, start: Any, end: Any, step: Any = 1, **_: Any) -> Tensor:
    return _range(ctx, start, step)


def _range(ctx: Context, start: Any, step: Any) -> Tensor:
    dtype = ctx.result_dtype()
    if DTYPES[dtype].kind == "i":  # torch counts in whole numbers then
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    if isinstance(start, float) or isinstance(step, float):

        def scaled(i: Any) -> Expr:
            position = cast(IndexValue(i[0]), "f64")
            value = call("add", call("mul", position, number(float(step), "f64")), number(float(start), "f64"))
            return cast(value, dtype)

        return Tensor(ctx.result_shape(), dtype, make=scaled)
    first = ctx.size(start)
    return Tensor(ctx.result_shape(), dtype, make=lambda i: cast(IndexValue(i[0] * int(step) + first), dtype))


@row("aten.tril.default")
def tril(ctx: Context, x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(ctx, x, "le", diagonal)


@row("aten.triu.default")
def triu(ctx: Context, x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(ctx, x, "ge", diagonal)


def _triangle(ctx: Context, x: Tensor, op: str, diagonal: int) -> Tensor:
    def element(i: list[Index]) -> Expr:
        keep = compare(op, IndexValue(i[-1]), IndexValue(i[-2] + diagonal))
        return where(keep, x.at(i), number(0, x.dtype))

    return ctx.builder.map(x.shape, x.dtype, element, x.memory_order())


@row("aten.eye.default", "aten.eye.m")
def eye(ctx: Context, *_: Any, **__: Any) -> Tensor:
    dtype = ctx.result_dtype()

    def element(i: Any) -> Expr:
        return cast(compare("eq", IndexValue(i[0]), IndexValue(i[1])), dtype)

    return Tensor(ctx.result_shape(), dtype, make=element)
