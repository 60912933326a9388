"""Convolutions as sums over their taps in the order of memory, on CPUs: those that fill no panels of channels.

    for n, o, h, w:  y[n, o, h, w] = sum_{k, l} x[n, o, h + k, w + l] * weight[o, k, l]

The lanes run along the rows of the planes; where an input of many channels is channels-last, along the channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...ir.expr import Expr, cast
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    as_index,
    maximum,
    minimum,
)
from ...ir.structured import Window
from ...machine.cpu import WIDEST_LANES
from ...machine.cpu_loops import WINDOWS
from ..core.builder import call, number, where
from ..core.context import Context
from ..core.readers import stays_elementwise
from ..core.tensor import Shape, Tensor, channels_last, unsqueeze
from .conv_elementwise import within

FEW = 4  # channels that a convolution of all of them sums up one by one
#: channels from which on their lanes are worth a layout: a vector of the widest registers
LANES = WIDEST_LANES
TILED = 7  # widest of the tiles for channels-last inputs of two dimensions (kernels/conv/depthwise.h)


#: weight(output channel, input channel of the group, taps)
Weight = Callable[[Index, Index, Sequence[Index]], Expr]


def sums_pay(ctx: Context, x: Tensor, window: Window, shape: Shape) -> bool:
    """Whether a convolution of x [n, c, ...] to `shape` is one for this module."""
    if ctx.builder.family != "cpu":
        return False
    inputs, outputs = ctx.integer(x.shape[1]), ctx.integer(shape[1])
    ones = set(window.kernel) == {1}
    if ones and inputs <= FEW * window.groups and stays_nchw(ctx, x):
        return True
    if window.groups == 1:
        if ones and not lies_channels_last(x):
            planes = inputs <= FEW or x.strided is not None
            return (outputs <= FEW and planes) or (inputs <= FEW and outputs <= 2 * FEW)
        return max(inputs, outputs) <= FEW and (outputs == 1 or unrolled(inputs, window))
    if inputs != window.groups:
        return False
    if ones or lacks_tiles(x, inputs, outputs):
        return True
    if x.rank == 3 and stays_nchw(ctx, x):  # what is no convolution in NCHW: windows that hardly overlap
        return True
    return x.rank == 4 and window.kernel[-1] > TILED


def lacks_tiles(x: Tensor, inputs: int, outputs: int) -> bool:
    """Whether no tiles take groups of one channel: in three dimensions, of several outputs each, or too few of them."""
    return x.rank == 5 or outputs != inputs or inputs < LANES


def unrolled(inputs: int, window: Window) -> bool:
    """Whether all products of a row are: with the windows that have begun (schedule/loops/sliding_window.py); those
    of a signal lie side by side."""
    *_, width = window.kernel
    if len(window.kernel) == 1:
        return inputs * width <= WINDOWS.iterations
    begun = (window.kernel[-2] - 1) // window.stride[-2] + 1
    return inputs * math.prod(window.kernel[:-2]) * width * begun <= WINDOWS.products and begun <= WINDOWS.begun


def sum_of_taps(
    ctx: Context,
    x: Tensor,
    weights: tuple[Weight, Weight],
    bias: Tensor | None,
    window: Window,
    shape: Shape,
    into: Tensor | None = None,
) -> Tensor:
    """x [n, c, ...] -> `shape`, a new tensor or `into`; weights: as they lie in NCHW, and channels last."""
    inputs, outputs = x.shape[1] // as_index(window.groups), shape[1] // as_index(window.groups)
    x, order = readable(ctx, x, window, shape), memory_order(x, window, shape)
    factor = weights[0] if order[1] == 1 else weights[1]
    spatial = len(window.kernel)

    def product(i: list[Index], at: list[Index]) -> Expr:
        channel = i[1] // outputs * inputs + i[2 + spatial]
        return call("mul", cast(x.at([i[0], channel, *at]), "f32"), factor(i[1], i[2 + spatial], i[3 + spatial :]))

    return sum_taps(ctx, product, x, inputs, bias, window, shape, order, into)


#: (output and tap [n, o, ..., channel, taps...], place inside of the map) -> what is added
Term = Callable[[list[Index], list[Index]], Expr]


def sum_taps(
    ctx: Context,
    value: Term,
    x: Tensor,
    inputs: Index,
    bias: Tensor | None,
    window: Window,
    shape: Shape,
    order: Sequence[int],
    into: Tensor | None = None,
) -> Tensor:
    """The sum of value() over `inputs` channels and the taps that lie inside of x [n, c, ...], in memory as `order`."""
    spatial = len(window.kernel)
    taps = range(spatial)
    holder: list[list[Index]] = []

    def term(i: list[Index]) -> Expr:
        holder.append(i)
        at = [i[2 + d] * window.stride[d] + i[3 + spatial + d] * window.dilation[d] - window.pad[d] for d in taps]
        inside = [minimum(maximum(place, ZERO), n - 1) for place, n in zip(at, x.shape[2:], strict=True)]
        found = value(i, inside)
        for condition in (c for place, n in zip(at, x.shape[2:], strict=True) for c in within(place, n)):
            found = where(condition, found, number(0, "f32"))
        return found

    def finish(i: list[Index], total: Expr) -> Expr:
        return total if bias is None else call("add", total, cast(bias.at([i[1]]), "f32"))

    source = (*shape, inputs, *(as_index(n) for n in window.kernel))
    if all(n == ONE for n in source[2 + spatial :]):
        zeros = [ZERO] * (1 + spatial)
        return ctx.builder.map(shape, x.dtype, lambda i: finish(i, term([*i, *zeros])), order, into)
    axes = list(range(2 + spatial, len(source)))
    ends = [(x.dtype, lambda accs: finish(holder[0], accs[0]))]
    dense = into is None or into.strided is None or ONE in into.strided.strides[1:]
    target = into if dense else None
    if target is not None:
        for axis in axes:
            target = unsqueeze(target, axis)
    (out,) = ctx.builder.reduce(source, axes, [("sum", term)], ends, False, (*order, *axes), target)
    return out if into is None or dense else ctx.builder.map(shape, x.dtype, out.at, out=into)


def readable(ctx: Context, x: Tensor, window: Window, shape: Shape) -> Tensor:
    """x in memory, its lanes side by side; not where each element is read once."""
    order = memory_order(x, window, shape)
    if x.strided is None:
        once = set(window.kernel) == {1} and shape[1] == as_index(window.groups)
        return x if once else ctx.builder.realize(x, order)
    return ctx.builder.realize(x, order) if order[1] == 1 and x.strided.strides[-1] != ONE else x


def memory_order(x: Tensor, window: Window, shape: Shape) -> tuple[int, ...]:
    """Of the result: channels-last where x is, and has as many channels as make lanes."""
    alone = shape[1] == as_index(window.groups) and (shape[1].constant or 0) >= LANES
    return channels_last(x.rank) if alone and lies_channels_last(x) else tuple(range(x.rank))


def lies_channels_last(x: Tensor) -> bool:
    return x.strided is not None and x.strided.strides[1] == ONE


def stays_nchw(ctx: Context, x: Tensor) -> bool:
    """Whether neither the operand x of the node at hand nor who reads its results wants channels last."""
    return not lies_channels_last(x) and stays_elementwise(ctx.node)
