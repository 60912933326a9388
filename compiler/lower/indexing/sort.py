"""Sorting: whole rows, stable (kernels/sort/sort.h); medians, order statistics and modes from sorted rows."""

from __future__ import annotations

import math
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import ONE, ZERO, Index, as_index, product
from ..core.builder import call, compare, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import (
    Tensor,
    permute,
    reshape,
    select,
    slice_dim,
    unsqueeze,
)
from ..reduce.reduce import reduction
from .gather import indirect


def sorted_rows(
    ctx: Context, x: Tensor, dim: int, descending: bool, count: Index | None = None
) -> tuple[Tensor, Tensor]:
    """The first `count` elements along `dim` in order, and their places; equal elements keep their order, NaN is the
    largest."""
    if x.rank == 0:
        line = reshape(x, (ONE,))
        assert line is not None
        values, places = sorted_rows(ctx, line, 0, descending)
        return ctx.builder.reshape(values, ()), ctx.builder.reshape(places, ())
    axis = ctx.axis(dim, x.rank)
    order = [*(d for d in range(x.rank) if d != axis), axis]
    back = [order.index(d) for d in range(x.rank)]
    rows = permute(x, order)
    n = rows.shape[-1]
    k = n if count is None else count
    outputs = [((k,), x.dtype), ((k,), "i64")]
    values, places = call_routine(ctx.builder, "sort", rows.shape[:-1], [(rows, 1)], outputs, [n, k, int(descending)])
    return permute(values, back), permute(places, back)


@row("aten.sort.default")
def sort(ctx: Context, x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return sorted_rows(ctx, x, dim, descending)


@row("aten.sort.stable")
def sort_stable(
    ctx: Context, x: Tensor, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> tuple[Tensor, Tensor]:
    return sorted_rows(ctx, x, dim, descending)


@row("aten.argsort.default", "aten.argsort.stable")
def argsort(ctx: Context, x: Tensor, dim: int = -1, descending: bool = False, *, stable: Any = None) -> Tensor:
    return sorted_rows(ctx, x, dim, descending)[1]


@row("aten.topk.default")
def topk(ctx: Context, x: Tensor, k: Any, dim: int = -1, largest: bool = True, _: bool = True) -> tuple[Tensor, Tensor]:
    if x.rank == 0:
        if ctx.size(k) == ZERO:
            raise ctx.refuse("the first 0 elements of a 0-dimensional tensor")
        return sorted_rows(ctx, x, 0, largest)
    return sorted_rows(ctx, x, dim, largest, ctx.size(k))


def _picked(ctx: Context, t: Tensor, dim: int, at: int | Index, keepdim: bool) -> Tensor:
    if t.rank == 0:
        return t
    axis = ctx.axis(dim, t.rank)
    one = slice_dim(t, axis, as_index(at), ONE)
    return one if keepdim else select(one, axis, ZERO)


@row("aten.kthvalue.default")
def kthvalue(ctx: Context, x: Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    values, places = sorted_rows(ctx, x, dim, False, ctx.size(k) if x.rank else None)
    return tuple(_picked(ctx, t, dim, ctx.size(k) - 1, keepdim) for t in (values, places))


@row("aten.median.dim")
def median_dim(ctx: Context, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    return _median(ctx, x, dim, keepdim, skip_nan=False)


@row("aten.nanmedian.dim")
def nanmedian_dim(ctx: Context, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, ...]:
    return _median(ctx, x, dim, keepdim, skip_nan=True)


@row("aten.median.default")
def median(ctx: Context, x: Tensor) -> Tensor:
    if product(x.shape) == ZERO:
        return _of_nothing(ctx, x)
    return _median(ctx, ctx.builder.reshape(x, (product(x.shape),)), 0, False, skip_nan=False)[0]


@row("aten.nanmedian.default")
def nanmedian(ctx: Context, x: Tensor) -> Tensor:
    if product(x.shape) == ZERO:
        return _of_nothing(ctx, x)
    return _median(ctx, ctx.builder.reshape(x, (product(x.shape),)), 0, False, skip_nan=True)[0]


def _of_nothing(ctx: Context, x: Tensor) -> Tensor:
    """NaN, or what torch's cast on x86 makes of it: the least int64; of others the low bits of the least int32."""
    if DTYPES[x.dtype].kind == "f":
        value = number(math.nan, DTYPES[x.dtype].compute)
    else:
        value = number(-(2**63), "i64") if x.dtype == "i64" else number(-(2**31), "i32")
    return ctx.builder.map((), x.dtype, lambda _: cast(value, x.dtype))


def _median(ctx: Context, x: Tensor, dim: int, keepdim: bool, skip_nan: bool) -> tuple[Tensor, ...]:
    """The lower of the two in the middle: of the numbers when `skip_nan`, else the first NaN if there is one."""
    values, places = sorted_rows(ctx, x, dim, False)
    if x.rank == 0:
        return values, places
    axis = ctx.axis(dim, x.rank)
    n = x.shape[axis]
    if DTYPES[x.dtype].kind != "f":
        return tuple(_picked(ctx, t, axis, (n - 1) // as_index(2), keepdim) for t in (values, places))
    count = reduction(
        ctx, x, [axis], True, "sum", lambda e: cast(compare("isnan", cast(e, DTYPES[x.dtype].compute)), "i64"),
        dtype="i64",
    )  # fmt: skip
    shape = (*x.shape[:axis], ONE, *x.shape[axis + 1 :])

    def place(i: list[Index]) -> Index:
        nans = count.at(i)
        numbers = call("sub", _number(n), nans)
        if skip_nan:
            middle = call("floor_div", call("sub", numbers, number(1, "i64")), number(2, "i64"))
            return indirect(call("maximum", middle, number(0, "i64")), n, wrap=False)
        middle = call("floor_div", call("sub", _number(n), number(1, "i64")), number(2, "i64"))
        return indirect(where(compare("gt", nans, number(0, "i64")), numbers, middle), n, wrap=False)

    def of(t: Tensor) -> Tensor:
        def element(i: list[Index]) -> Expr:
            return t.at([*i[:axis], place(i), *i[axis + 1 :]])

        out = ctx.builder.map(shape, t.dtype, element)
        return out if keepdim else select(out, axis, ZERO)

    return of(values), of(places)


def _number(n: Index) -> Expr:
    from ..core.builder import size_value

    return size_value(n, "i64")


@row("aten.mode.default")
def mode(ctx: Context, x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The most frequent element of each row, the smallest of several, and the place of its last occurrence."""
    line = unsqueeze(x, 0) if x.rank == 0 else x
    axis = ctx.axis(dim, line.rank)
    order = [*(d for d in range(line.rank) if d != axis), axis]
    rows = permute(line, order)
    outputs: list[tuple[tuple[Index, ...], str]] = [((), x.dtype), ((), "i64")]
    results = call_routine(ctx.builder, "mode", rows.shape[:-1], [(rows, 1)], outputs, [rows.shape[-1]])
    if x.rank == 0 or not keepdim:
        return tuple(results)
    return tuple(unsqueeze(t, axis) for t in results)
