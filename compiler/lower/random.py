"""Random operators.

On a CPU they draw torch's own numbers (mersenne.py): those of eager after torch.manual_seed(seed). On a GPU a number is
a function of the call's seed, the operator and the element (Philox): of the same distribution, not torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.dtypes import DTYPES
from ..ir.expr import Call, Expr, IndexValue, cast
from ..ir.index import ONE, Index, of, product
from ..ir.random import CALL
from . import mersenne
from .builder import call, compare, number, where
from .context import Context
from .create import filled
from .registry import row
from .routines import call_routine
from .tensor import Shape, Tensor, expand, linear_index, unsqueeze

#: random bits of a uniform number on a GPU: as many as keep it below 1 when it is rounded
BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


class Draw:
    """The random numbers of one operator, by element: float64 numbers on either kind of device.

    wide: whether torch makes a number of 64 random bits, not of 32.
    """

    def __init__(self, ctx: Context, shape: Shape, wide: bool, order: Sequence[int] | None = None) -> None:
        builder = ctx.builder
        self.shape, self.wide, self.stream = shape, wide, len(builder.nodes)
        self.words = None
        if builder.family == "cpu":
            line = mersenne.words(builder, product(shape), wide)
            self.words = mersenne.in_memory_order(shape, order or range(len(shape)), line)

    def _call(self, op: str, dtype: str, i: Sequence[Index], *more: Expr) -> Expr:
        place = IndexValue(linear_index(i, self.shape))
        return Call(op, (IndexValue(of(CALL)), number(self.stream, "i64"), place, *more), dtype)

    def uniform(self, i: Sequence[Index], bits: int = 53) -> Expr:
        """In [0, 1)."""
        if self.words is not None:
            return mersenne.fraction(self.words.at(i), self.wide)
        return self._call("random_uniform", "f64", i, number(bits, "i64"))

    def below(self, i: Sequence[Index], limit: int) -> Expr:
        """A whole number in [0, limit)."""
        if self.words is not None:
            return mersenne.below(self.words.at(i), limit, self.wide)
        return call("remainder", self._call("random_bits", "i64", i), number(limit, "i64"))

    def normal(self, i: Sequence[Index]) -> Expr:
        return self._call("random_normal", "f64", i)


def _order(ctx: Context) -> tuple[int, ...]:
    """The dimensions of the result from the slowest to the fastest in memory: torch draws in this order."""
    strides = ctx.value().stride()
    if not all(isinstance(s, int) for s in strides):
        return tuple(range(len(strides)))
    return tuple(sorted(range(len(strides)), key=lambda d: (-strides[d], d)))


def _drawn(ctx: Context, wide: bool, value: Callable[[Draw, list[Index]], Expr], dtype: str | None = None) -> Tensor:
    """The node's result in memory, its elements made of drawn numbers: written once, however many read it."""
    shape, order = ctx.result_shape(), _order(ctx)
    draw = Draw(ctx, shape, wide, order)
    return ctx.builder.map(shape, dtype or ctx.result_dtype(), lambda i: value(draw, i), order)


def _normals(ctx: Context, shape: Shape, dtype: str, order: Sequence[int] | None = None) -> Tensor:
    """Normal numbers of mean 0 and deviation 1; float64."""
    if ctx.builder.family == "cpu":
        return mersenne.normals(ctx.builder, shape, dtype == "f64", order)
    draw = Draw(ctx, shape, True)
    return ctx.builder.map(shape, "f64", draw.normal)


def _operand(value: Any, i: Sequence[Index]) -> Expr:
    return cast(value.at_broadcast(i), "f64") if isinstance(value, Tensor) else number(float(value), "f64")


def _scaled_normal(ctx: Context, mean: Any, deviation: Any) -> Tensor:
    dtype, order = ctx.result_dtype(), _order(ctx)
    values = _normals(ctx, ctx.result_shape(), dtype, order)

    def value(i: list[Index]) -> Expr:
        return call("add", _operand(mean, i), call("mul", _operand(deviation, i), values.at(i)))

    return ctx.builder.map(ctx.result_shape(), dtype, value, order)


# uniform numbers -----------------------------------------------------------------------------------------------------
def _uniform(ctx: Context, low: float, high: float) -> Tensor:
    dtype = ctx.result_dtype()
    compute = DTYPES[dtype].compute

    def value(draw: Draw, i: list[Index]) -> Expr:
        u = cast(draw.uniform(i, BITS.get(dtype, 53)), compute)
        if (low, high) == (0.0, 1.0):
            return u
        span = call("sub", number(float(high), compute), number(float(low), compute))
        return call("add", call("mul", u, span), number(float(low), compute))

    return _drawn(ctx, dtype == "f64", value)


@row("aten.rand.default", "aten.rand_like.default")
def rand(ctx: Context, *_: Any, **__: Any) -> Tensor:
    return _uniform(ctx, 0.0, 1.0)


@row("aten.uniform.default")
def uniform(ctx: Context, x: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return _uniform(ctx, low, high)


@row("aten.bernoulli.default", "aten.bernoulli.p", "aten.bernoulli.Tensor")
def bernoulli(ctx: Context, x: Tensor, p: Any = None, **_: Any) -> Tensor:
    """1 with the probability p, or that of each element."""
    chances = x if p is None else p
    given = isinstance(chances, Tensor)
    wide = not given or chances.dtype == "f64"
    compute = "f64" if wide else "f32"

    def value(draw: Draw, i: list[Index]) -> Expr:
        chance = cast(chances.at_broadcast(i), compute) if given else number(float(chances), "f64")
        return cast(compare("lt", cast(draw.uniform(i), compute), chance), DTYPES[x.dtype].compute)

    return _drawn(ctx, wide, value)


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
    shape, order, builder = ctx.result_shape(), _order(ctx), ctx.builder
    cpu = builder.family == "cpu"
    values = mersenne.normals_one_by_one(builder, shape, order) if cpu else _normals(ctx, shape, "f64")

    def value(i: list[Index]) -> Expr:
        return call("exp", call("add", call("mul", values.at(i), number(std, "f64")), number(mean, "f64")))

    return builder.map(shape, ctx.result_dtype(), value, order)


# other distributions -------------------------------------------------------------------------------------------------
def _exponential(u: Expr, rate: float) -> Expr:
    """-log(1 - u) / rate"""
    return call("mul", call("log1p", call("neg", u)), number(-1.0 / rate, "f64"))


@row("aten.exponential.default")
def exponential(ctx: Context, x: Tensor, lambd: float = 1.0, **_: Any) -> Tensor:
    return _drawn(ctx, True, lambda draw, i: _exponential(draw.uniform(i), float(lambd)))


@row("aten.cauchy.default")
def cauchy(ctx: Context, x: Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Tensor:
    def value(draw: Draw, i: list[Index]) -> Expr:
        angle = call("mul", call("sub", draw.uniform(i), number(0.5, "f64")), number(math.pi, "f64"))
        return call("add", call("mul", call("tan", angle), number(float(sigma), "f64")), number(float(median), "f64"))

    return _drawn(ctx, True, value)


@row("aten.geometric.default")
def geometric(ctx: Context, x: Tensor, p: float, **_: Any) -> Tensor:
    """How many trials up to the first success: ceil(log(u) / log(1 - p))."""
    scale = number(math.log1p(-float(p)) if p < 1 else -math.inf, "f64")
    return _drawn(ctx, True, lambda draw, i: call("ceil", call("div", call("log", draw.uniform(i)), scale)))


# whole numbers -------------------------------------------------------------------------------------------------------
def _integers(ctx: Context, low: int, high: int) -> Tensor:
    """Whole numbers in [low, high)."""
    limit = max(high - low, 1)
    if limit > 1 << 62:
        raise ctx.refuse("random whole numbers of a range above 2^62")

    def value(draw: Draw, i: list[Index]) -> Expr:
        return call("add", draw.below(i, limit), number(low, "i64"))

    return _drawn(ctx, limit >= mersenne.WIDE_RANGE, value)


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
    limit = top[x.dtype] + 1
    return _drawn(ctx, False, lambda draw, i: draw.below(i, limit))


@row("aten.randperm.default")
def randperm(ctx: Context, n: Any, **_: Any) -> Tensor:
    size = ctx.size(n)
    if ctx.builder.family == "cpu":
        values = mersenne.draw(ctx.builder, "mersenne_permutation", size, "i64", [size])
    else:
        from .sort import sorted_rows

        draw = Draw(ctx, (size,), True)
        values = sorted_rows(ctx, ctx.builder.map((size,), "f64", draw.uniform), 0, False)[1]
    dtype = ctx.result_dtype()
    return values if dtype == "i64" else ctx.builder.map((size,), dtype, values.at)


# choices by weight ---------------------------------------------------------------------------------------------------
@row("aten.multinomial.default")
def multinomial(ctx: Context, weights: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    """With replacement by the running sums of the weights; else, and for one choice, the first of a race in which
    element j takes -log(u) / weight: the winner is j with a probability in proportion to its weight."""
    from .reduce import fold
    from .sort import sorted_rows

    size = ctx.size(count)
    if replacement and ctx.builder.family == "cpu" and size != ONE:
        return _by_running_sums(ctx, weights, size)
    if not replacement or size == ONE:
        return sorted_rows(ctx, _races(ctx, weights), -1, False, size)[1]
    wide = expand(unsqueeze(weights, weights.rank - 1), (*weights.shape[:-1], size, weights.shape[-1]))
    return fold(ctx, _races(ctx, wide), [-1], False, "argmin", lambda e: e, dtype="i64")


def _races(ctx: Context, weights: Tensor) -> Tensor:
    """The time of every element: an exponential number over its weight; never for a weight of 0."""
    draw = Draw(ctx, weights.shape, True)
    compute = "f64" if weights.dtype == "f64" else "f32"

    def value(i: list[Index]) -> Expr:
        weight = cast(weights.at(i), "f64")
        time = call("div", cast(cast(_exponential(draw.uniform(i), 1.0), compute), "f64"), weight)
        return where(compare("gt", weight, number(0.0, "f64")), time, number(float("inf"), "f64"))

    return ctx.builder.map(weights.shape, "f64", value)


def _by_running_sums(ctx: Context, weights: Tensor, count: Index) -> Tensor:
    batch, k = weights.shape[:-1], weights.shape[-1]
    line = mersenne.words(ctx.builder, product((*batch, count)), wide=True)
    drawn = mersenne.in_memory_order((*batch, count), range(len(batch) + 1), line)
    inputs = [(weights, 1), (drawn, 1)]
    return call_routine(ctx.builder, "weighted_places", batch, inputs, [((count,), "i64")], [k, count])[0]


# dropout -------------------------------------------------------------------------------------------------------------
def _kept(ctx: Context, shape: Shape, p: float, order: Sequence[int] | None = None) -> Tensor:
    """True for each element that is kept, which it is with the probability 1 - p."""
    draw = Draw(ctx, shape, True, order)
    return ctx.builder.map(
        shape, "bool", lambda i: compare("lt", draw.uniform(i), number(1.0 - float(p), "f64")), order
    )


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
    return _dropped(ctx, x, p, _kept(ctx, x.shape, p, _order(ctx)))


@row("aten.native_dropout.default")
def native_dropout(ctx: Context, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x, filled(x.shape, "bool", True)
    kept = _kept(ctx, x.shape, p)
    return _dropped(ctx, x, p, kept), kept


@row("aten.feature_dropout.default")
def feature_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    """Whole channels are dropped."""
    return x if not train or p == 0 else _dropped(ctx, x, p, _kept(ctx, _channels(x), p))


@row("aten.alpha_dropout.default")
def alpha_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    return x if not train or p == 0 else _alpha(ctx, x, p, _kept(ctx, x.shape, p, _order(ctx)))


@row("aten.feature_alpha_dropout.default")
def feature_alpha_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    return x if not train or p == 0 else _alpha(ctx, x, p, _kept(ctx, _channels(x), p))


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
    """A random slope for each element below 0; torch draws for these alone, one after the other."""
    compute = DTYPES[x.dtype].compute
    slope: Tensor
    if training:
        below = ctx.builder.map(x.shape, "bool", lambda i: compare("le", cast(x.at(i), compute), number(0.0, compute)))
        slope = _slopes(ctx, below, lower, upper)
    else:
        slope = filled(x.shape, "f64", (lower + upper) / 2)

    def value(i: list[Index]) -> Expr:
        e = cast(x.at(i), compute)
        positive = compare("gt", e, number(0.0, compute))
        return where(positive, e, call("mul", e, cast(slope.at(i), compute)))

    out = ctx.builder.map(x.shape, x.dtype, value, x.memory_order())
    return out, ctx.builder.map(x.shape, x.dtype, slope.at) if training else noise


def _slopes(ctx: Context, below: Tensor, lower: float, upper: float) -> Tensor:
    from .scan import Running, scan

    n = product(below.shape)
    flat = ctx.builder.reshape(below, (n,))
    draw = Draw(ctx, (n,), True)
    rank = Running("i64", -1, lambda accs, e, _: call("add", accs[0], cast(e, "i64")))
    (place,) = scan(ctx, flat, 0, [rank], ["i64"])

    def slope(i: list[Index]) -> Expr:
        from .gather import indirect

        at = indirect(call("maximum", place.at(i), number(0, "i64")), n, wrap=False)
        u = call("add", call("mul", draw.uniform([at]), number(upper - lower, "f64")), number(lower, "f64"))
        return where(flat.at(i), u, number(1.0, "f64"))

    return ctx.builder.reshape(ctx.builder.map((n,), "f64", slope), below.shape)
