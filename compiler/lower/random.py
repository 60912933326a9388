"""Random numbers: functions of the call, the operator and the element, so that every thread count draws the same.

The numbers are not torch's; their distributions are. Calls are counted from 0 in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.dtypes import DTYPES
from ..ir.expr import Call, Expr, IndexValue, cast
from ..ir.index import Index, of
from ..ir.random import CALL
from .builder import call, compare, number, where
from .context import Context
from .registry import row
from .tensor import Shape, Tensor, linear_index

#: random bits of a uniform number: as many as keep it below 1 when it is rounded
BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def drawn(ctx: Context, shape: Shape, dtype: str, value: Callable[[Draw, list[Index]], Expr]) -> Tensor:
    """A tensor in memory whose elements are drawn: written once, however many read it."""
    draw = Draw(shape, len(ctx.builder.nodes))
    return ctx.builder.map(shape, dtype, lambda i: value(draw, i))


class Draw:
    """The random numbers of one operator, by element."""

    def __init__(self, shape: Shape, stream: int) -> None:
        self.shape, self.stream = shape, stream

    def _call(self, op: str, dtype: str, i: list[Index], *more: Expr) -> Expr:
        place = IndexValue(linear_index(i, self.shape))
        return Call(op, (IndexValue(of(CALL)), number(self.stream, "i64"), place, *more), dtype)

    def uniform(self, i: list[Index], dtype: str) -> Expr:
        return self._call("random_uniform", "f64", i, number(BITS.get(dtype, 53), "i64"))

    def normal(self, i: list[Index]) -> Expr:
        return self._call("random_normal", "f64", i)

    def bits(self, i: list[Index]) -> Expr:
        return self._call("random_bits", "i64", i)


@row("aten.rand.default", "aten.rand_like.default")
def rand(ctx: Context, *_: Any, **__: Any) -> Tensor:
    dtype = ctx.result_dtype()
    return drawn(ctx, ctx.result_shape(), dtype, lambda draw, i: draw.uniform(i, dtype))


@row("aten.randn.default", "aten.randn_like.default")
def randn(ctx: Context, *_: Any, **__: Any) -> Tensor:
    return drawn(ctx, ctx.result_shape(), ctx.result_dtype(), lambda draw, i: draw.normal(i))


def _integers(ctx: Context, low: int, high: int) -> Tensor:
    """Whole numbers in [low, high)."""

    def value(draw: Draw, i: list[Index]) -> Expr:
        return call("add", call("remainder", draw.bits(i), number(max(high - low, 1), "i64")), number(low, "i64"))

    return drawn(ctx, ctx.result_shape(), ctx.result_dtype(), value)


@row("aten.randint.default")
def randint(ctx: Context, high: int, size: Any, **_: Any) -> Tensor:
    return _integers(ctx, 0, int(high))


@row("aten.randint.low")
def randint_low(ctx: Context, low: int, high: int, size: Any, **_: Any) -> Tensor:
    return _integers(ctx, int(low), int(high))


@row("aten.randint_like.default")
def randint_like(ctx: Context, x: Tensor, high: int, **_: Any) -> Tensor:
    return _integers(ctx, 0, int(high))


@row("aten.randint_like.low_dtype")
def randint_like_low(ctx: Context, x: Tensor, low: int, high: int, **_: Any) -> Tensor:
    return _integers(ctx, int(low), int(high))


@row("aten.normal.float_float", "aten.normal.Tensor_Tensor", "aten.normal.Tensor_float", "aten.normal.float_Tensor")
def normal(ctx: Context, mean: Any = 0.0, std: Any = 1.0, *_: Any, **__: Any) -> Tensor:
    def part(v: Any, i: list[Index]) -> Expr:
        return cast(v.at_broadcast(i), "f64") if isinstance(v, Tensor) else number(float(v), "f64")

    def value(draw: Draw, i: list[Index]) -> Expr:
        return call("add", part(mean, i), call("mul", part(std, i), draw.normal(i)))

    return drawn(ctx, ctx.result_shape(), ctx.result_dtype(), value)


@row("aten.bernoulli.default", "aten.bernoulli.p")
def bernoulli(ctx: Context, x: Tensor, p: float | None = None, **_: Any) -> Tensor:
    """1 with the probability p, or that of each element."""

    def value(draw: Draw, i: list[Index]) -> Expr:
        chance = number(float(p), "f64") if p is not None else cast(x.at(i), "f64")
        return cast(compare("lt", draw.uniform(i, "f64"), chance), DTYPES[x.dtype].compute)

    return drawn(ctx, ctx.result_shape(), ctx.result_dtype(), value)


def exponential_races(ctx: Context, weights: Tensor) -> Tensor:
    """-log(u) / w for every element: the smallest of a row wins with a probability in proportion to its weight."""

    def value(draw: Draw, i: list[Index]) -> Expr:
        weight = cast(weights.at(i), "f64")
        time = call("div", call("neg", call("log1p", call("neg", draw.uniform(i, "f64")))), weight)
        return where(compare("gt", weight, number(0.0, "f64")), time, number(float("inf"), "f64"))

    return drawn(ctx, weights.shape, "f64", value)


@row("aten.multinomial.default")
def multinomial(ctx: Context, weights: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    """Without replacement the first `count` of one race of all categories, with it the winners of `count` races."""
    from .reduce import fold
    from .sort import sorted_rows
    from .tensor import expand, unsqueeze

    if not replacement:
        return sorted_rows(ctx, exponential_races(ctx, weights), -1, False, ctx.size(count))[1]
    wide = unsqueeze(weights, weights.rank - 1)
    wide = expand(wide, (*weights.shape[:-1], ctx.size(count), weights.shape[-1]))
    return fold(ctx, exponential_races(ctx, wide), [-1], False, "argmin", lambda e: e, dtype="i64")
