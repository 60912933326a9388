"""Dropout, and the other operators of training that change elements at random (see random.py).

On a GPU dropout of a number of elements that is not known and no multiple of four has torch's distribution alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import ONE, Index, product
from ..core.builder import call, compare, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Shape, Tensor
from ..pointwise.create import filled
from . import philox
from .random import Draw, draw_order, draws_on_gpu


def _kept(
    ctx: Context, shape: Shape, p: float, dtype: str, order: Sequence[int] | None = None, fused: bool = False
) -> Tensor:
    """True for each element that is kept, which it is with the probability 1 - p.

    dtype: of what is dropped. fused: torch has one kernel for it on a GPU.
    """
    if draws_on_gpu(ctx):
        return _kept_on_gpu(ctx, shape, p, dtype, order, fused)
    draw = Draw(ctx, shape, True, order)
    return ctx.builder.map(
        shape, "bool", lambda i: compare("lt", draw.uniform(i), number(1.0 - float(p), "f64")), order
    )


def _has_holes(ctx: Context) -> bool:
    """Whether the operand is a view that leaves elements out: torch then takes its elements one by one."""
    node = ctx.operand_node(0)
    value = node.meta["val"] if node is not None else None
    if not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in (*value.shape, *value.stride())):
        return False
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(value.stride(), value.shape, strict=True) if n != 1):
        if stride != step:
            return True
        step *= n
    return False


def _kept_on_gpu(
    ctx: Context, shape: Shape, p: float, dtype: str, order: Sequence[int] | None, fused: bool
) -> Tensor:  # fmt: skip
    if fused and p == 1:
        return filled(shape, "bool", False)
    wide, compute = dtype == "f64", "f64" if dtype == "f64" else "f32"
    draw: philox.Draw
    if not fused:
        draw = philox.Draw(ctx.builder, shape, wide, order)
    elif _has_holes(ctx):
        draw = philox.Draw(ctx.builder, shape)
    else:
        draw = philox.Kept(ctx.builder, shape, dtype, order)

    def value(i: list[Index]) -> Expr:
        return compare("lt", cast(draw.unit(i), compute), number(1.0 - float(p), compute))

    return ctx.builder.map(shape, "bool", value, order)


def _dropped(ctx: Context, x: Tensor, p: float, kept: Tensor) -> Tensor:
    compute = DTYPES[x.dtype].compute

    def value(i: list[Index]) -> Expr:
        noise = cast(kept.at_broadcast(i), compute)
        if p < 1:
            noise = call("div", noise, number(1.0 - float(p), compute))
        return call("mul", cast(x.at(i), compute), noise)

    return ctx.builder.map(x.shape, x.dtype, value, x.memory_order())


def _channels(x: Tensor) -> Shape:
    """A number for each of the first two dimensions, all others share it."""
    return (*x.shape[:2], *((ONE,) * (x.rank - 2)))


@row("aten.dropout.default")
def dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0:
        return x
    return _dropped(ctx, x, p, _kept(ctx, x.shape, p, x.dtype, draw_order(ctx), fused=True))


@row("aten.native_dropout.default")
def native_dropout(ctx: Context, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x, filled(x.shape, "bool", True)
    kept = _kept(ctx, x.shape, p, x.dtype, fused=True)
    return _dropped(ctx, x, p, kept), kept


@row("aten.feature_dropout.default")
def feature_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    """Whole channels are dropped."""
    return x if not train or p == 0 else _dropped(ctx, x, p, _kept(ctx, _channels(x), p, x.dtype))


@row("aten.alpha_dropout.default")
def alpha_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    return x if not train or p == 0 else _alpha(ctx, x, p, _kept(ctx, x.shape, p, x.dtype, draw_order(ctx)))


@row("aten.feature_alpha_dropout.default")
def feature_alpha_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    return x if not train or p == 0 else _alpha(ctx, x, p, _kept(ctx, _channels(x), p, x.dtype))


def _alpha(ctx: Context, x: Tensor, p: float, kept: Tensor) -> Tensor:
    """Dropped elements become the value at which SELU ends, and all are scaled so that mean and deviation stay."""
    if p == 1:
        return _dropped(ctx, x, p, kept)
    alpha, compute = 1.7580993408473766, DTYPES[x.dtype].compute
    a = 1.0 / math.sqrt((alpha * alpha * p + 1) * (1 - p))

    def value(i: list[Index]) -> Expr:
        noise = cast(kept.at_broadcast(i), compute)
        shift = call("mul", call("sub", noise, number(1.0, compute)), number(alpha * a, compute))
        shift = call("add", shift, number(alpha * a * p, compute))
        return call("add", call("mul", cast(x.at(i), compute), call("mul", noise, number(a, compute))), shift)

    return ctx.builder.map(x.shape, x.dtype, value, x.memory_order())


@row("aten.rrelu_with_noise_functional.default")
def rrelu_with_noise(
    ctx: Context,
    x: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """A random slope for each element below 0; on a CPU torch draws for these alone, one after the other."""
    compute = DTYPES[x.dtype].compute
    slope: Tensor
    if training:
        below = ctx.builder.map(x.shape, "bool", lambda i: compare("le", cast(x.at(i), compute), number(0.0, compute)))
        slope = (_slopes_on_gpu if draws_on_gpu(ctx) else _slopes)(ctx, below, lower, upper)
    else:
        slope = filled(x.shape, "f64", (lower + upper) / 2)

    def value(i: list[Index]) -> Expr:
        e = cast(x.at(i), compute)
        positive = compare("gt", e, number(0.0, compute))
        return where(positive, e, call("mul", e, cast(slope.at(i), compute)))

    out = ctx.builder.map(x.shape, x.dtype, value, x.memory_order())
    return out, ctx.builder.map(x.shape, x.dtype, slope.at) if training else noise


def _slopes(ctx: Context, below: Tensor, lower: float, upper: float) -> Tensor:
    from ..reduce.scan import Running, scan

    n = product(below.shape)
    flat = ctx.builder.reshape(below, (n,))
    draw = Draw(ctx, (n,), True)
    rank = Running("i64", -1, lambda accs, e, _: call("add", accs[0], cast(e, "i64")))
    (place,) = scan(ctx, flat, 0, [rank], ["i64"])

    def slope(i: list[Index]) -> Expr:
        from ..indexing.gather import indirect

        at = indirect(call("maximum", place.at(i), number(0, "i64")), n, wrap=False)
        u = call("add", call("mul", draw.uniform([at]), number(upper - lower, "f64")), number(lower, "f64"))
        return where(flat.at(i), u, number(1.0, "f64"))

    return ctx.builder.reshape(ctx.builder.map((n,), "f64", slope), below.shape)


def _slopes_on_gpu(ctx: Context, below: Tensor, lower: float, upper: float) -> Tensor:
    wide = ctx.result_dtype(0) == "f64"
    draw = philox.Draw(ctx.builder, below.shape, wide)

    def slope(i: list[Index]) -> Expr:
        u = call("mul", cast(draw.unit(i), "f64"), number(upper - lower, "f64"))
        return where(below.at(i), call("add", u, number(lower, "f64")), number(1.0, "f64"))

    return ctx.builder.map(below.shape, "f64", slope)
