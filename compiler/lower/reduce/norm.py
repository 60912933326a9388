"""Normalisations: statistics of a row, then one map over it. The schedule makes one kernel of the three nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import ONE, ZERO, Index, as_index, product
from ...machine.cpu_products import CONVOLUTIONS
from ..core.builder import call, number, size_value
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor, reshape
from ..pointwise.create import filled
from .reduce import moments


@row("aten.layer_norm.default")
def layer_norm(
    ctx: Context,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    return _layer_norm(ctx, x, len(normalized_shape), weight, bias, eps)[0]


@row("aten.native_layer_norm.default")
def native_layer_norm(
    ctx: Context, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    return _layer_norm(ctx, x, len(shape), weight, bias, eps)


def _layer_norm(
    ctx: Context, x: Tensor, inner: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, the mean and the reciprocal deviation of each row."""
    dtype = x.dtype
    compute = DTYPES[dtype].compute
    mean, squares, _, variance = moments(ctx, x, range(x.rank - inner, x.rank))
    root = ctx.builder.map(
        squares.shape,
        compute,
        lambda i: call("rsqrt", call("add", variance(squares.at(i)), number(float(eps), compute))),
    )

    def element(i: list[Index]) -> Expr:
        y = call("mul", call("sub", cast(x.at(i), compute), mean.at_broadcast(i)), root.at_broadcast(i))
        if weight is not None:
            y = call("mul", y, cast(weight.at_broadcast(i), compute))
        return y if bias is None else call("add", y, cast(bias.at_broadcast(i), compute))

    return ctx.builder.map(x.shape, dtype, element, x.memory_order()), mean, root


@row("aten.rms_norm.default")
def rms_norm(
    ctx: Context, x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    dtype = x.dtype
    compute = DTYPES[dtype].compute
    axes = range(x.rank - len(normalized_shape), x.rank)
    count = product(x.shape[d] for d in axes)
    epsilon = float(eps) if eps is not None else (2.220446049250313e-16 if dtype == "f64" else 1.1920928955078125e-07)

    def square(i: list[Index]) -> Expr:
        v = cast(x.at(i), compute)
        return call("mul", v, v)

    def finish(acc: list[Expr]) -> Expr:
        return call("rsqrt", call("add", call("div", acc[0], size_value(count, compute)), number(epsilon, compute)))

    (root,) = ctx.builder.reduce(x.shape, list(axes), [("sum", square)], [(compute, finish)], True, x.memory_order())

    def element(i: list[Index]) -> Expr:
        y = call("mul", cast(x.at(i), compute), root.at_broadcast(i))
        return y if weight is None else call("mul", y, cast(weight.at_broadcast(i), compute))

    return ctx.builder.map(x.shape, dtype, element, x.memory_order())


@row("aten.group_norm.default")
def group_norm(
    ctx: Context,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    n, c = x.shape[:2]
    per_group = c // as_index(groups)
    compute = DTYPES[x.dtype].compute
    epsilon = number(float(eps), compute)
    if ctx.builder.family == "cpu" and _channels_lie_last(x, groups, per_group):
        mean, root = _mean_and_variance_by_channel(ctx, x, as_index(groups), epsilon)
        return _scaled(ctx, x, weight, bias, lambda i: (mean.at_broadcast(i), root.at_broadcast(i)))
    shape = (n, as_index(groups), per_group, *x.shape[2:])
    grouped = reshape(x, shape)
    if grouped is None:
        x = ctx.builder.dense(x)
        grouped = reshape(x, shape)
    assert grouped is not None
    mean, squares, _count, variance = moments(ctx, grouped, range(2, grouped.rank))
    root = ctx.builder.map(
        squares.shape, compute, lambda i: call("rsqrt", call("add", variance(squares.at(i)), epsilon))
    )

    def statistics(i: list[Index]) -> tuple[Expr, Expr]:
        group = [i[0], i[1] // per_group, i[1] % per_group, *i[2:]]
        return mean.at_broadcast(group), root.at_broadcast(group)

    return _scaled(ctx, x, weight, bias, statistics)


def _scaled(
    ctx: Context,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Callable[[list[Index]], tuple[Expr, Expr]],
) -> Tensor:
    """(x - mean) * root * weight + bias; statistics: mean and root of an element, weights are by channel."""
    compute = DTYPES[x.dtype].compute

    def element(i: list[Index]) -> Expr:
        mean, root = statistics(i)
        y = call("mul", call("sub", cast(x.at(i), compute), mean), root)
        if weight is not None:
            y = call("mul", y, cast(weight.at([i[1]]), compute))
        return y if bias is None else call("add", y, cast(bias.at([i[1]]), compute))

    return ctx.builder.map(x.shape, ctx.result_dtype(), element, x.memory_order())


def _channels_lie_last(x: Tensor, groups: int, per_group: Index) -> bool:
    """Whether neighbours in memory are channels of several groups, each of some channels."""
    some = per_group.constant is not None and 1 < per_group.constant <= CONVOLUTIONS.group
    return some and groups > 1 and x.rank > 2 and x.memory_order()[-1] == 1


def _mean_and_variance_by_channel(ctx: Context, x: Tensor, groups: Index, epsilon: Expr) -> tuple[Tensor, Tensor]:
    """Mean and reciprocal deviation of a channel's group, for each channel: vectors of channels read them side by side.

    Moments of the channels are merged (Chan, Golub, LeVeque 1979), for each channel of a group again.
    """
    n, c = x.shape[:2]
    per_group, places = c // groups, range(2, x.rank)
    compute = DTYPES[x.dtype].compute
    mean_, squares, count, _ = moments(ctx, x, places)

    def merged(value: Callable[[list[Index]], Expr], size: Index, finish: Callable[[Expr], Expr]) -> Tensor:
        """Of what the channels of a group have at [n, c, 0, ...]."""
        (all_,) = ctx.builder.reduce(
            (n, groups, per_group, per_group),
            [3],
            [("sum", lambda i: value([i[0], i[1] * per_group + i[3], *(ZERO for _ in places)]))],
            [(compute, lambda a: finish(call("div", a[0], size_value(size, compute))))],
        )
        return ctx.builder.reshape(all_, (n, c, *(ONE for _ in places)))

    mean = merged(mean_.at, per_group, lambda total: total)

    def square(i: list[Index]) -> Expr:
        apart = call("sub", mean_.at(i), mean.at(i))
        return call("add", squares.at(i), call("mul", call("mul", apart, apart), size_value(count, compute)))

    root = merged(square, per_group * count, lambda variance: call("rsqrt", call("add", variance, epsilon)))
    return mean, root


@row("aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    ctx: Context,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    *rest: Any,
) -> Any:
    """Batch norm in evaluation, where it was not folded into a convolution; without statistics, with the batch's."""
    many = isinstance(ctx.node.meta["val"], (tuple, list))
    training = not many and bool(rest[0])
    compute = DTYPES[x.dtype].compute
    eps = number(float(rest[1] if many else rest[2]), compute)
    axes = [d for d in range(x.rank) if d != 1]
    if training and mean is None and var is None and x.rank > 1:
        average, squares, _, variance = moments(ctx, x, axes)
    elif training or mean is None or var is None:
        raise ctx.refuse("batch norm in training mode; call model.eval() before compiling")

    def statistics(i: list[Index]) -> tuple[Expr, Expr]:
        if mean is not None and var is not None:
            return cast(mean.at([i[1]]), compute), cast(var.at([i[1]]), compute)
        return average.at_broadcast(i), variance(squares.at_broadcast(i))

    def element(i: list[Index]) -> Expr:
        centre, spread = statistics(i)
        y = call("mul", call("sub", cast(x.at(i), compute), centre), call("rsqrt", call("add", spread, eps)))
        if weight is not None:
            y = call("mul", y, cast(weight.at([i[1]]), compute))
        return y if bias is None else call("add", y, cast(bias.at([i[1]]), compute))

    out = ctx.builder.map(x.shape, x.dtype, element, x.memory_order()) if x.rank > 1 else x
    # in evaluation the saved statistics are empty
    return (out, *(filled(ctx.result_shape(k), "f32", 0) for k in (1, 2))) if many else out
