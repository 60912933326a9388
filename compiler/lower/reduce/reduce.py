"""Reductions over dimensions, in the compute type, finished by an expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import ONE, Index, as_index, product
from ..core.builder import call, compare, number, size_value, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor


def axes_of(ctx: Context, x: Tensor, dims: Any) -> list[int]:
    """The reduced dimensions; None or () mean all."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(x.rank))
    return [ctx.axis(d, x.rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])] if x.rank else []


def reduction(
    ctx: Context,
    x: Tensor,
    dims: Any,
    keepdim: bool,
    op: str,
    value: Callable[[Expr], Expr],
    finish: Callable[[Expr, Index], Expr] = lambda acc, _: acc,
    dtype: str | None = None,
) -> Tensor:
    """One reduction over `dims`; finish(acc, number of elements)."""
    axes = axes_of(ctx, x, dims)
    count = product(x.shape[d] for d in axes)
    (out,) = ctx.builder.reduce(
        x.shape,
        axes,
        [(op, lambda i: value(x.at(i)))],
        [(dtype or ctx.result_dtype(), lambda accs: finish(accs[0], count))],
        keepdim,
        x.memory_order(),
    )
    return out


def widened(ctx: Context) -> Callable[[Expr], Expr]:
    compute = DTYPES[ctx.result_dtype()].compute
    return lambda e: cast(e, compute)


#: the largest magnitude of whole numbers so small that 32 bits hold a sum of many
SMALL_NUMBERS = {"bool": 1, "i8": 1 << 7, "u8": 1 << 8, "i16": 1 << 15}


@row("aten.sum.default", "aten.sum.dim_IntList")
def sum_op(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    dtype = ctx.result_dtype()
    if dtype == "bool":
        return reduction(ctx, x, dim, keepdim, "any", widened(ctx))
    most = (2**31 - 1) // SMALL_NUMBERS[x.dtype] if x.dtype in SMALL_NUMBERS and dtype == "i64" else 0
    count = product(x.shape[d] for d in axes_of(ctx, x, dim))
    if (as_index(most) - count).nonnegative():  # twice as many lanes as of 64 bits
        return reduction(ctx, x, dim, keepdim, "sum", lambda e: cast(e, "i32"), lambda acc, _: cast(acc, dtype))
    return reduction(ctx, x, dim, keepdim, "sum", widened(ctx))


@row("aten.mean.default", "aten.mean.dim")
def mean(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    return reduction(
        ctx, x, dim, keepdim, "sum", widened(ctx), lambda acc, n: call("div", acc, size_value(n, acc.dtype))
    )


@row("aten.prod.default", "aten.prod.dim_int")
def prod(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    return reduction(ctx, x, dim, keepdim, "all" if ctx.result_dtype() == "bool" else "prod", widened(ctx))


@row("aten.amax.default", "aten.max.default")
def amax(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return reduction(ctx, x, dim, keepdim, "max", widened(ctx))


@row("aten.amin.default", "aten.min.default")
def amin(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return reduction(ctx, x, dim, keepdim, "min", widened(ctx))


@row("aten.any.default", "aten.any.dim", "aten.any.dims", "aten._is_any_true.default")
def any_op(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return reduction(ctx, x, dim, keepdim, "any", lambda e: cast(e, "bool"))


@row("aten.all.default", "aten.all.dim", "aten.all.dims", "aten._is_all_true.default")
def all_op(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return reduction(ctx, x, dim, keepdim, "all", lambda e: cast(e, "bool"))


@row("aten.argmax.default")
def argmax(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _arg(ctx, x, dim, keepdim, "argmax")


@row("aten.argmin.default")
def argmin(ctx: Context, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _arg(ctx, x, dim, keepdim, "argmin")


def _arg(ctx: Context, x: Tensor, dim: Any, keepdim: bool, op: str) -> Tensor:
    rank, whole = x.rank, dim is None
    if whole:
        x, dim = ctx.builder.reshape(x, (product(x.shape),)), 0
    place = reduction(ctx, x, [dim], keepdim, op, lambda e: cast(e, DTYPES[x.dtype].compute), dtype="i64")
    return ctx.builder.reshape(place, (ONE,) * rank) if whole and keepdim else place


@row("aten.max.dim")
def max_dim(ctx: Context, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    return _value_and_index(ctx, x, dim, keepdim, "max", "argmax")


@row("aten.min.dim")
def min_dim(ctx: Context, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    return _value_and_index(ctx, x, dim, keepdim, "min", "argmin")


def _value_and_index(ctx: Context, x: Tensor, dim: int, keepdim: bool, op: str, arg: str) -> tuple[Tensor, ...]:
    compute = DTYPES[x.dtype].compute

    def value(i: list[Index]) -> Expr:
        return cast(x.at(i), compute)

    axes = axes_of(ctx, x, [dim])
    outs = ctx.builder.reduce(
        x.shape,
        axes,
        [(op, value), (arg, value)],
        [(x.dtype, lambda a: a[0]), ("i64", lambda a: a[1])],
        keepdim,
        x.memory_order(),
    )
    return tuple(outs)


def moments(
    ctx: Context, x: Tensor, axes: Sequence[int], correction: float = 0.0
) -> tuple[Tensor, Tensor, Index, Callable[[Expr], Expr]]:
    """Mean and sum of squared deviations over `axes` (kept as size 1), in two passes: exact where one pass is not."""
    compute = DTYPES[x.dtype].compute
    count = product(x.shape[d] for d in axes)
    (mean_,) = ctx.builder.reduce(
        x.shape,
        axes,
        [("sum", lambda i: cast(x.at(i), compute))],
        [(compute, lambda a: call("div", a[0], size_value(count, compute)))],
        True,
        x.memory_order(),
    )

    def deviation(i: list[Index]) -> Expr:
        d = call("sub", cast(x.at(i), compute), mean_.at_broadcast(i))
        return call("mul", d, d)

    (squares,) = ctx.builder.reduce(
        x.shape, axes, [("sum", deviation)], [(compute, lambda a: a[0])], True, x.memory_order()
    )

    def variance(total: Expr) -> Expr:
        if correction == 0:
            return call("div", total, size_value(count, compute))
        left = call("sub", size_value(count, compute), number(float(correction), compute))
        return call("div", total, call("maximum", left, number(0.0, compute)))

    return mean_, squares, count, variance


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 1.0 if unbiased in (None, True) else 0.0


def _variance(
    ctx: Context, x: Tensor, dim: Any, correction: float, keepdim: bool, root: bool, index: int | None = None
) -> tuple[Tensor, Tensor]:
    axes = axes_of(ctx, x, dim)
    mean_, squares, _, variance = moments(ctx, x, axes, correction)
    dtype = ctx.result_dtype(index)

    def element(i: list[Index]) -> Expr:
        v = variance(squares.at(i))
        return call("sqrt", v) if root else v

    out = ctx.builder.map(squares.shape, dtype, element)
    shape = ctx.result_shape(index)
    return ctx.builder.reshape(out, shape), ctx.builder.reshape(mean_, shape)


@row("aten.var.default", "aten.var.dim", "aten.var.correction")
def var(
    ctx: Context, x: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> Tensor:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return _variance(ctx, x, dim, _correction(unbiased, correction), keepdim, False)[0]


@row("aten.std.default", "aten.std.dim", "aten.std.correction")
def std(
    ctx: Context, x: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> Tensor:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return _variance(ctx, x, dim, _correction(unbiased, correction), keepdim, True)[0]


@row("aten.var_mean.correction", "aten.var_mean.dim", "aten.var_mean.default")
def var_mean(
    ctx: Context, x: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return _variance(ctx, x, dim, _correction(unbiased, correction), keepdim, False, 0)


@row("aten.softmax.int", "aten._softmax.default")
def softmax(ctx: Context, x: Tensor, dim: int, *_: Any) -> Tensor:
    return _softmax(ctx, x, dim, log=False)


@row("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(ctx: Context, x: Tensor, dim: int, *_: Any) -> Tensor:
    return _softmax(ctx, x, dim, log=True)


def _softmax(ctx: Context, x: Tensor, dim: int, log: bool) -> Tensor:
    axes = axes_of(ctx, x, [dim])
    dtype = ctx.result_dtype()
    compute = DTYPES[dtype].compute
    order = x.memory_order()

    def value(i: list[Index]) -> Expr:
        return cast(x.at(i), compute)

    # a NaN in the row is in its sum: the maximum needs no care of it
    (top,) = ctx.builder.reduce(x.shape, axes, [("top", value)], [(compute, lambda a: a[0])], True, order)

    def shifted(i: list[Index]) -> Expr:
        return call("sub", value(i), top.at_broadcast(i))

    inverse = not log and compute == "f32"  # one division a row, not one an element

    def finish(accs: Sequence[Expr]) -> Expr:
        if log:
            return call("log", accs[0])
        return call("reciprocal", accs[0]) if inverse else accs[0]

    (total,) = ctx.builder.reduce(
        x.shape, axes, [("sum", lambda i: call("exp_weight", shifted(i)))], [(compute, finish)], True, order
    )

    def element(i: list[Index]) -> Expr:
        t = total.at_broadcast(i)
        if log:
            return call("sub", shifted(i), t)
        return call("mul" if inverse else "div", call("exp_weight", shifted(i)), t)

    return ctx.builder.map(x.shape, dtype, element, order)


@row("aten.logsumexp.default")
def logsumexp(ctx: Context, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    axes = axes_of(ctx, x, dim)
    dtype = ctx.result_dtype()
    compute = DTYPES[dtype].compute

    def value(i: list[Index]) -> Expr:
        return cast(x.at(i), compute)

    (top,) = ctx.builder.reduce(x.shape, axes, [("max", value)], [(compute, lambda a: a[0])], True, x.memory_order())

    def least(i: list[Index]) -> Expr:  # an infinite maximum must not make inf - inf
        most = top.at_broadcast(i)
        return where(compare("isfinite", most), most, number(0.0, compute))

    def weight(i: list[Index]) -> Expr:
        return call("exp_weight", call("sub", value(i), least(i)))

    (total,) = ctx.builder.reduce(x.shape, axes, [("sum", weight)], [(compute, lambda a: a[0])], True, x.memory_order())

    def element(i: list[Index]) -> Expr:
        most = top.at(i)
        infinite = compare("eq", most, number(float("inf"), compute))  # whatever the weights have come to
        return where(infinite, most, call("add", call("log", total.at(i)), least(i)))

    return ctx.builder.reshape(ctx.builder.map(total.shape, dtype, element), ctx.result_shape())
