"""Integer convolutions: products of patches of a map, channels last, with the weight's taps; those of single channels
as sums of their taps, channels side by side; others as sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Acc, Expr, Load, cast
from ...ir.index import ONE, ZERO, Index, as_index, maximum, minimum, of, product
from ...ir.nodes import Store
from ...ir.structured import Digits, Gemm, Patches, Quantised
from ..core.builder import call, number, where
from ..core.constants import LinePanels
from ..core.context import ConstantRef, Context, ints
from ..core.registry import row
from ..core.tensor import Strided, Tensor, channels_last, dense_strides, squeeze, unsqueeze
from .conv_elementwise import direct_convolution, within

#: what is taken off values of a type so that they fit int8
RAISED = {"i8": 0, "u8": 128}


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
    weight, spatial = ctx.constant(1), w.rank - 2
    geometry = [ints(g, spatial) for g in (stride, padding, dilation)]
    if weight is not None and ctx.builder.family == "cpu" and x.dtype in RAISED and _is_depthwise(weight, groups):
        return _by_channels(ctx, x, weight, x_zero, *geometry)
    if weight is None or ctx.builder.family != "cpu" or groups != 1 or spatial > 2 or x.dtype not in RAISED:

        def moved(i: list[Index]) -> Expr:
            return call("sub", cast(x.at(i), "i32"), number(x_zero, "i32"))

        centred = ctx.builder.map(x.shape, "i32", moved)
        steps, front, apart = geometry
        return direct_convolution(ctx, centred, w, None, steps, front, apart, groups, False)
    if spatial == 1:
        lifted = [(1, *geometry[0]), (0, *geometry[1]), (1, *geometry[2])]
        return squeeze(_product_of_patches(ctx, unsqueeze(x, 2), weight, x_zero, *lifted), 2)
    return _product_of_patches(ctx, x, weight, x_zero, *geometry)


#: taps that are unrolled in the loop over channels
MOST_TAPS = 64


def _is_depthwise(weight: ConstantRef, groups: int) -> bool:
    """Whether each channel has one window of its own, of few taps."""
    outputs, inner, *kernel = weight.tensor.shape
    return outputs == groups and inner == 1 and math.prod(kernel) <= MOST_TAPS


def _by_channels(
    ctx: Context,
    x: Tensor,
    weight: ConstantRef,
    x_zero: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """x [b, c, ...] with a window [c, 1, ...] for each channel -> int32 [b, c, ...], channels last in memory."""
    builder, kernel, zero = ctx.builder, weight.tensor.shape[2:], x_zero - RAISED[x.dtype]
    shown = _bytes(ctx, x, zero, padding)
    taps = _derived(ctx, f"{weight.target}_taps", lambda: weight.tensor.flatten(1).t().to(torch.int32).contiguous())
    lost = _zero_sums(ctx, weight, zero) if zero else None
    sides = zip(shown.shape[2:], kernel, stride, dilation, strict=True)
    shape = (*shown.shape[:2], *((n - d * (k - 1) - 1) // as_index(s) + ONE for n, k, s, d in sides))

    def value(i: list[Index]) -> Expr:
        total: Expr | None = None if lost is None else call("neg", Load(lost, i[1]))
        for number_of, tap in enumerate(itertools.product(*map(range, kernel))):
            places = [o * s + t * d for o, s, t, d in zip(i[2:], stride, tap, dilation, strict=True)]
            left = cast(shown.at([*i[:2], *places]), "i32")
            term = call("mul", left, Load(taps, i[1] + number_of * shape[1]))
            total = term if total is None else call("add", total, term)
        assert total is not None
        return total

    return builder.map(shape, "i32", value, order=channels_last(x.rank))


def _product_of_patches(
    ctx: Context,
    x: Tensor,
    weight: ConstantRef,
    x_zero: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """x [b, c, h, w] with a weight [n, c, ...] -> int32 [b, n, h', w'], channels last in memory."""
    builder, outputs = ctx.builder, weight.tensor.shape[0]
    kernel = (1, *weight.tensor.shape[2:])[-2:]
    zero, channels = x_zero - RAISED[x.dtype], ctx.integer(x.shape[1])
    shown = _bytes(ctx, x, zero, padding)
    assert shown.strided is not None
    image, _, line, pixel = shown.strided.strides
    sides = zip(shown.shape[2:], kernel, stride, dilation, strict=True)
    height, width = ((n - d * (k - 1) - 1) // as_index(s) + ONE for n, k, s, d in sides)
    rows = Digits((x.shape[0], height, width), (image, line * stride[0], pixel * stride[1]))
    side_by_side = dilation[1] == 1 and pixel == as_index(channels)
    runs = (kernel[0], 1 if side_by_side else kernel[1])
    taps = Digits(tuple(map(as_index, runs)), (line * dilation[0], pixel * dilation[1]))
    k = channels * kernel[0] * kernel[1]
    how = Quantised(8, patches=Patches(rows, taps, k // (runs[0] * runs[1])))
    packed = builder.constant(weight.target, weight.tensor, LinePanels(8, k, taps=True))
    m, n = builder.var(product(rows.extents), "m"), builder.var(as_index(outputs), "n")
    acc = Acc(builder.fresh("acc"), "i32")
    out = builder.temp((m.extent, n.extent), "i32")
    assert out.strided is not None
    value: Expr = acc
    if zero:
        value = call("sub", acc, Load(_zero_sums(ctx, weight, zero), of(n)))
    store = Store(out.strided.buffer, out.place([of(m), of(n)]), value)
    left, right = Operand(shown.strided.buffer, shown.strided.offset, ()), Operand(packed, ZERO, ())
    builder.add(Gemm((m, n), (store,), builder.origin, as_index(k), left, right, True, acc, quantised=how))
    shape = (x.shape[0], as_index(outputs), height, width)
    return Tensor(shape, "i32", Strided(out.strided.buffer, dense_strides(shape, channels_last(4))))


def _bytes(ctx: Context, x: Tensor, zero: int, padding: Sequence[int]) -> Tensor:
    """x as int8 with its zero around it, channels last in memory; x itself where it is that."""
    last = channels_last(x.rank)
    if x.dtype == "i8" and not any(padding) and x.strided is not None and x.strided.strides[1] == ONE:
        return x
    shape = (*x.shape[:2], *(n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)))

    def value(i: list[Index]) -> Expr:
        places = [at - p for at, p in zip(i[2:], padding, strict=True)]
        inside = [minimum(maximum(at, ZERO), n - 1) for at, n in zip(places, x.shape[2:], strict=True)]
        found = call("sub", cast(x.at([*i[:2], *inside]), "i32"), number(RAISED[x.dtype], "i32"))
        for at, n, p in zip(places, x.shape[2:], padding, strict=True):
            for condition in within(at, n) if p else []:
                found = where(condition, found, number(zero, "i32"))
        return found

    return ctx.builder.map(shape, "i8", value, order=last)


def _zero_sums(ctx: Context, weight: ConstantRef, zero: int) -> Buffer:
    """What the zero of the map adds to each output: a constant of its own, int32 [n]."""
    target = f"{weight.target}_zero{'_' if zero < 0 else ''}{abs(zero)}"
    return _derived(ctx, target, lambda: (weight.tensor.flatten(1).to(torch.int64).sum(1) * zero).to(torch.int32))


def _derived(ctx: Context, target: str, make: Callable[[], torch.Tensor]) -> Buffer:
    """A constant that follows from a weight, once."""
    known = next((buffer for c, buffer in ctx.builder.constants.items() if c.target == target), None)
    return known if known is not None else ctx.builder.constant(target, make())
