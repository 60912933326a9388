"""Random operators.

They draw torch's own numbers: on a CPU those of eager after torch.manual_seed(seed) (mersenne.py), on a GPU those of
eager there after torch.cuda.manual_seed(seed) (philox.py), but for randperm and multinomial with replacement, whose
distributions alone are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import ONE, Index, product
from ..core.builder import call, compare, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import Shape, Tensor, expand, unsqueeze
from . import mersenne, philox


class Draw:
    """The random numbers of one operator on a CPU, by element.

    wide: whether torch makes a number of 64 random bits, not of 32.
    """

    def __init__(self, ctx: Context, shape: Shape, wide: bool, order: Sequence[int] | None = None) -> None:
        self.wide = wide
        line = mersenne.words(ctx.builder, product(shape), wide)
        self.words = mersenne.in_memory_order(shape, order or range(len(shape)), line)

    def uniform(self, i: Sequence[Index]) -> Expr:
        """In [0, 1); float64."""
        return mersenne.fraction(self.words.at(i), self.wide)

    def word(self, i: Sequence[Index]) -> Expr:
        return self.words.at(i)


def draws_on_gpu(ctx: Context) -> bool:
    """Whether the numbers are to be those that torch draws on a GPU."""
    return ctx.builder.family == "cuda"


def draw_order(ctx: Context) -> tuple[int, ...]:
    """The dimensions of the result from the slowest to the fastest in memory: torch draws in this order."""
    strides = ctx.value().stride()
    if not all(isinstance(s, int) for s in strides):
        return tuple(range(len(strides)))
    return tuple(sorted(range(len(strides)), key=lambda d: (-strides[d], d)))


def _drawn(
    ctx: Context, wide: bool, value: Callable[[Draw, list[Index]], Expr], on_gpu: philox.Value
) -> Tensor:  # fmt: skip
    """The node's result in memory, its elements made of drawn numbers: written once, however many read it.

    wide: on a CPU. On a GPU float64 numbers alone have 64 bits.
    """
    shape, order, dtype = ctx.result_shape(), draw_order(ctx), ctx.result_dtype()
    if draws_on_gpu(ctx):
        drawn = philox.Draw(ctx.builder, shape, dtype == "f64", order)
        return ctx.builder.map(shape, dtype, lambda i: on_gpu(drawn, i), order)
    draw = Draw(ctx, shape, wide, order)
    return ctx.builder.map(shape, dtype, lambda i: value(draw, i), order)


def _normals(ctx: Context, shape: Shape, dtype: str, order: Sequence[int] | None = None) -> Tensor:
    """Normal numbers of mean 0 and deviation 1; float64, on a GPU float32 but for results of float64."""
    wide = dtype == "f64"
    if not draws_on_gpu(ctx):
        return mersenne.normals(ctx.builder, shape, wide, order)
    draw = philox.Draw(ctx.builder, shape, wide, order)
    return ctx.builder.map(shape, "f64" if wide else "f32", draw.normal, order)


def _operand(value: Any, i: Sequence[Index], dtype: str) -> Expr:
    return cast(value.at_broadcast(i), dtype) if isinstance(value, Tensor) else number(float(value), dtype)


def _scaled_normal(ctx: Context, mean: Any, deviation: Any) -> Tensor:
    dtype, order = ctx.result_dtype(), draw_order(ctx)
    values = _normals(ctx, ctx.result_shape(), dtype, order)

    def value(i: list[Index]) -> Expr:
        scaled = call("mul", _operand(deviation, i, values.dtype), values.at(i))
        return call("add", _operand(mean, i, values.dtype), scaled)

    return ctx.builder.map(ctx.result_shape(), dtype, value, order)


# uniform numbers -----------------------------------------------------------------------------------------------------
def _uniform(ctx: Context, low: float, high: float) -> Tensor:
    dtype = ctx.result_dtype()
    compute = DTYPES[dtype].compute

    def value(draw: Draw, i: list[Index]) -> Expr:
        u = cast(draw.uniform(i), compute)
        if (low, high) == (0.0, 1.0):
            return u
        span = call("sub", number(float(high), compute), number(float(low), compute))
        return call("add", call("mul", u, span), number(float(low), compute))

    return _drawn(ctx, dtype == "f64", value, philox.uniform(dtype, float(low), float(high)))


@row("aten.rand.default", "aten.rand_like.default")
def rand(ctx: Context, *_: Any, **__: Any) -> Tensor:
    return _uniform(ctx, 0.0, 1.0)


@row("aten.uniform.default")
def uniform(ctx: Context, x: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return _uniform(ctx, low, high)


@row("aten.bernoulli.default", "aten.bernoulli.p", "aten.bernoulli.Tensor")
def bernoulli(ctx: Context, x: Tensor, p: Any = None, **_: Any) -> Tensor:
    """1 with the probability p, or that of each element."""
    if isinstance(x if p is None else p, Tensor):
        return _by_probabilities(ctx, x, x if p is None else p)

    def value(draw: Draw, i: list[Index]) -> Expr:
        return compare("lt", draw.uniform(i), number(float(p), "f64"))

    def on_gpu(draw: philox.Draw, i: list[Index]) -> Expr:
        u = draw.unit(i)
        return compare("lt", u, number(float(p), u.dtype))

    return _drawn(ctx, True, value, on_gpu)


def _by_probabilities(ctx: Context, x: Tensor, chances: Tensor) -> Tensor:
    shape, order, compute = ctx.result_shape(), draw_order(ctx), "f64" if chances.dtype == "f64" else "f32"
    if draws_on_gpu(ctx):
        compute = "f64" if x.dtype == "f64" else "f32"
        u, relation = philox.OfProbabilities(ctx.builder, shape, order=order).unit, "le"
    else:
        u, relation = Draw(ctx, shape, chances.dtype == "f64", order).uniform, "lt"

    def value(i: list[Index]) -> Expr:
        drawn = compare(relation, cast(u(i), compute), cast(chances.at_broadcast(i), compute))
        return cast(drawn, DTYPES[x.dtype].compute)

    return ctx.builder.map(shape, ctx.result_dtype(), value, order)


# normal numbers ------------------------------------------------------------------------------------------------------
@row("aten.randn.default", "aten.randn_like.default")
def randn(ctx: Context, *_: Any, **__: Any) -> Tensor:
    return _scaled_normal(ctx, 0.0, 1.0)


@row("aten.normal.float_float", "aten.normal.Tensor_Tensor", "aten.normal.Tensor_float", "aten.normal.float_Tensor")
def normal(ctx: Context, mean: Any = 0.0, std: Any = 1.0, *_: Any, **__: Any) -> Tensor:
    return _scaled_normal(ctx, mean, std)


@row("aten.normal_functional.default")
def normal_functional(ctx: Context, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return _scaled_normal(ctx, mean, std)


@row("aten.log_normal.default")
def log_normal(ctx: Context, x: Tensor, mean: float = 1.0, std: float = 2.0, **_: Any) -> Tensor:
    shape, order, builder, dtype = ctx.result_shape(), draw_order(ctx), ctx.builder, ctx.result_dtype()
    gpu = draws_on_gpu(ctx)
    values = _normals(ctx, shape, dtype, order) if gpu else mersenne.normals_one_by_one(builder, shape, order)

    def value(i: list[Index]) -> Expr:
        scaled = call("mul", values.at(i), number(std, values.dtype))
        return call("exp", call("add", scaled, number(mean, values.dtype)))

    return builder.map(shape, dtype, value, order)


# other distributions -------------------------------------------------------------------------------------------------
def _exponential(u: Expr, rate: float) -> Expr:
    """-log(1 - u) / rate"""
    return call("mul", call("log1p", call("neg", u)), number(-1.0 / rate, "f64"))


@row("aten.exponential.default")
def exponential(ctx: Context, x: Tensor, lambd: float = 1.0, **_: Any) -> Tensor:
    rate = float(lambd)
    return _drawn(ctx, True, lambda draw, i: _exponential(draw.uniform(i), rate), philox.exponential(rate))


@row("aten.cauchy.default")
def cauchy(ctx: Context, x: Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Tensor:
    def value(draw: Draw, i: list[Index]) -> Expr:
        angle = call("mul", call("sub", draw.uniform(i), number(0.5, "f64")), number(math.pi, "f64"))
        return call("add", call("mul", call("tan", angle), number(float(sigma), "f64")), number(float(median), "f64"))

    return _drawn(ctx, True, value, philox.cauchy(float(median), float(sigma)))


@row("aten.geometric.default")
def geometric(ctx: Context, x: Tensor, p: float, **_: Any) -> Tensor:
    """How many trials up to the first success: ceil(log(u) / log(1 - p))."""
    scale = number(math.log1p(-float(p)) if p < 1 else -math.inf, "f64")

    def value(draw: Draw, i: list[Index]) -> Expr:
        return call("ceil", call("div", call("log", draw.uniform(i)), scale))

    return _drawn(ctx, True, value, philox.geometric(float(p)))


# whole numbers -------------------------------------------------------------------------------------------------------
def _integers(ctx: Context, low: int, high: int) -> Tensor:
    """Whole numbers in [low, high)."""
    limit = max(high - low, 1)
    if limit > 1 << 62:
        raise ctx.refuse("random whole numbers of a range above 2^62")

    return _whole_numbers(ctx, limit, limit >= mersenne.WIDE_RANGE, low)


def _whole_numbers(ctx: Context, limit: int, wide: bool, low: int = 0) -> Tensor:
    shape, order = ctx.result_shape(), draw_order(ctx)
    draw = philox.Draw(ctx.builder, shape, wide, order) if draws_on_gpu(ctx) else Draw(ctx, shape, wide, order)

    def value(i: list[Index]) -> Expr:
        return call("add", mersenne.below(draw.word(i), limit, wide), number(low, "i64"))

    return ctx.builder.map(shape, ctx.result_dtype(), value, order)


@row("aten.randint.default")
def randint(ctx: Context, high: int, size: Any, **_: Any) -> Tensor:
    return _integers(ctx, 0, int(high))


@row("aten.randint.low")
def randint_low(ctx: Context, low: int, high: int, size: Any, **_: Any) -> Tensor:
    return _integers(ctx, int(low), int(high))


@row("aten.randint_like.default", "aten.random.to")
def randint_like(ctx: Context, x: Tensor, high: int, **_: Any) -> Tensor:
    return _integers(ctx, 0, int(high))


@row("aten.randint_like.low_dtype")
def randint_like_low(ctx: Context, x: Tensor, low: int, high: int, **_: Any) -> Tensor:
    return _integers(ctx, int(low), int(high))


@row("aten.random.from")
def random_from(ctx: Context, x: Tensor, low: int, high: int | None = None, **_: Any) -> Tensor:
    if high is None:
        raise ctx.refuse("random_ with a lower bound alone: give the upper one too")
    return _integers(ctx, int(low), int(high))


@row("aten.random.default")
def random(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """Whole numbers that the type holds exactly; of int64 torch draws 63 bits."""
    top = {
        "bool": 1,
        "u8": 255,
        "i8": 127,
        "i16": 2**15 - 1,
        "f16": 2**11,
        "bf16": 2**8,
        "f32": 2**24,
        "i32": 2**31 - 1,
    }
    if x.dtype not in top:
        raise ctx.refuse(f"random_ of {x.dtype}: use randint with a range")
    return _whole_numbers(ctx, top[x.dtype] + 1, wide=False)


@row("aten.randperm.default")
def randperm(ctx: Context, n: Any, **_: Any) -> Tensor:
    size = ctx.size(n)
    if ctx.builder.family == "cpu":
        values = mersenne.draw(ctx.builder, "mersenne_permutation", size, "i64", [size])
    else:
        from ..indexing.sort import sorted_rows

        draw = philox.Draw(ctx.builder, (size,), wide=True)
        values = sorted_rows(ctx, ctx.builder.map((size,), "f64", draw.unit), 0, False)[1]
    dtype = ctx.result_dtype()
    return values if dtype == "i64" else ctx.builder.map((size,), dtype, values.at)


# choices by weight ---------------------------------------------------------------------------------------------------
@row("aten.multinomial.default")
def multinomial(ctx: Context, weights: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    """With replacement by the running sums of the weights; else, and for one choice, the first of a race in which
    element j takes -log(u) / weight: the winner is j with a probability in proportion to its weight."""
    from ..indexing.sort import sorted_rows
    from ..reduce.reduce import reduction

    size = ctx.size(count)
    if replacement and ctx.builder.family == "cpu" and size != ONE:
        return _by_running_sums(ctx, weights, size)
    if not replacement or size == ONE:
        return sorted_rows(ctx, _races(ctx, weights), -1, False, size)[1]
    wide = expand(unsqueeze(weights, weights.rank - 1), (*weights.shape[:-1], size, weights.shape[-1]))
    return reduction(ctx, _races(ctx, wide), [-1], False, "argmin", lambda e: e, dtype="i64")


def _races(ctx: Context, weights: Tensor) -> Tensor:
    """The time of every element: an exponential number over its weight; never for a weight of 0."""
    wide = weights.dtype == "f64"
    compute = "f64" if wide else "f32"
    drawn = _exponentials(ctx, weights.shape, wide)

    def value(i: list[Index]) -> Expr:
        weight = cast(weights.at(i), "f64")
        time = call("div", cast(cast(drawn(i), compute), "f64"), weight)
        return where(compare("gt", weight, number(0.0, "f64")), time, number(float("inf"), "f64"))

    return ctx.builder.map(weights.shape, "f64", value)


def _exponentials(ctx: Context, shape: Shape, wide: bool) -> Callable[[list[Index]], Expr]:
    """An exponential number for each element; wide: of float64."""
    if draws_on_gpu(ctx):
        device, one = philox.Draw(ctx.builder, shape, wide), philox.exponential(1.0)
        return lambda i: one(device, i)
    draw = Draw(ctx, shape, True)
    return lambda i: _exponential(draw.uniform(i), 1.0)


def _by_running_sums(ctx: Context, weights: Tensor, count: Index) -> Tensor:
    batch, k = weights.shape[:-1], weights.shape[-1]
    line = mersenne.words(ctx.builder, product((*batch, count)), wide=True)
    drawn = mersenne.in_memory_order((*batch, count), range(len(batch) + 1), line)
    inputs = [(weights, 1), (drawn, 1)]
    return call_routine(ctx.builder, "weighted_places", batch, inputs, [((count,), "i64")], [k, count])[0]
