"""Convolutions of 1, 2 and 3 dimensions: channels-last implicit GEMM, or Winograd's.

1-d ones are 2-d ones of height 1. Zeros around the input are no copy: neither a convolution's own padding nor that of
an operator in front of it, on whichever sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.buffers import Operand
from ...ir.expr import Acc, Expr, cast
from ...ir.index import ONE, ZERO, Index, as_index, of
from ...ir.nodes import Store
from ...ir.structured import NCHW, Conv, Window
from ..core.builder import call, number
from ..core.constants import Layout, NchwTaps, Taps
from ..core.context import ConstantRef, Context, ints
from ..core.registry import row
from ..core.tensor import (
    Shape,
    Strided,
    Tensor,
    channels_last,
    squeeze,
    unsqueeze,
)
from .conv_algorithm import algorithm_for, algorithm_of, layout_of, nchw_pays, reads_nchw
from .conv_elementwise import direct_convolution
from .conv_weights import Given, factor_of, kernel_of, narrowed, packed_as, packs, weight_of, widens
from .direct_conv import sum_of_taps, sums_pay
from .gemm_col2im import products_of_taps, products_pay
from .matmul import widened


@row("aten.conv1d.default", "aten.conv1d.padding")
@row("aten.conv2d.default", "aten.conv2d.padding")
@row("aten.conv3d.default", "aten.conv3d.padding")
def conv(
    ctx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    spatial = weight.rank - 2
    if ZERO in (shape := ctx.builder.sizes.shape(ctx.value().shape)):  # of no channels torch gives none
        return ctx.builder.map(shape, x.dtype, lambda _: number(0.0, x.dtype))
    if widens(ctx, x):
        return narrowed(ctx, conv(ctx, widened(ctx, x), weight, bias, stride, padding, dilation, groups), x.dtype)
    if not packs(ctx, x, weight):
        own = ints(stride, spatial), _padding(padding, kernel_of(ctx, weight), ints(dilation, spatial))[0]
        return direct_convolution(ctx, x, weight, bias, *own, ints(dilation, spatial), groups, transposed=False)
    if x.rank == spatial + 1:
        return squeeze(conv(ctx, unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0)
    kernel = tuple(ctx.integer(n) for n in weight.shape[2:])
    steps, dilations = ints(stride, spatial), ints(dilation, spatial)
    front, total = _padding(padding, kernel, dilations)
    size = [_out_size(x.shape[2 + d] + total[d], kernel[d], steps[d], dilations[d]) for d in range(spatial)]
    shape = (x.shape[0], weight.shape[0], *size)
    packed = weight_of(ctx, weight)
    return convolve(ctx, x, packed, bias, Window(kernel, steps, front, dilations, groups), shape)


def _padding(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
    """Zeros in front of each dimension, and on both sides together."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple(n // 2 for n in total), total
    front = ints(padding, len(kernel))
    return front, [2 * n for n in front]


def _out_size(padded: Index, kernel: int, stride: int, dilation: int) -> Index:
    return (padded - dilation * (kernel - 1) - 1) // as_index(stride) + ONE


@dataclass(frozen=True)
class Place:
    """Where a convolution's outputs lie: element i of a spatial dimension at position first + i * step of `out`."""

    out: Tensor
    first: tuple[int, ...]
    step: tuple[int, ...]

    def part(self, shape: Shape) -> Tensor:
        """The outputs as a tensor of their own."""
        assert self.out.strided is not None
        s = self.out.strided
        strides = (*s.strides[:2], *(stride * step for stride, step in zip(s.strides[2:], self.step, strict=True)))
        offset = s.offset
        for stride, first in zip(s.strides[2:], self.first, strict=True):
            offset = offset + stride * first
        return Tensor(shape, self.out.dtype, Strided(s.buffer, strides, offset))


def convolve(
    ctx: Context,
    x: Tensor,
    weight: ConstantRef | Given,
    bias: Tensor | None,
    window: Window,
    shape: Shape,
    place: Place | None = None,
    layout: Layout | None = None,
) -> Tensor:
    """x [n, c, ...] with the packed weight -> `shape`, which lies in memory channels-last, or in NCHW, or at `place`.

    window.pad: zeros in front; those behind follow from `shape`. layout: of the weight; None: this function's choice.
    """
    if not ctx.takes_product(x.dtype):
        raise ctx.refuse(f"convolutions of {x.dtype} are not supported on this target")
    builder, spatial = ctx.builder, x.rank - 2
    x, zeros = builder.unpadded(x)
    window = window.moved(zeros[2:])
    if layout is None and nchw_pays(ctx, x, window, shape):
        layout = NchwTaps(window.groups)
    if layout is None and products_pay(ctx, x, window, shape):
        return products_of_taps(ctx, x, factor_of(ctx, weight), bias, window, shape)
    if layout is None and sums_pay(ctx, x, window, shape):
        return sum_of_taps(ctx, x, (factor_of(ctx, weight), factor_of(ctx, weight, Taps())), bias, window, shape)
    out_shape = shape
    if spatial == 1:
        x, window = unsqueeze(x, 2), window.lifted()
        shape = (*shape[:2], ONE, shape[2])
    computed = isinstance(weight, Given)
    algorithm = algorithm_of(ctx, x, window, shape, computed) if layout is None else algorithm_for(layout)
    last = channels_last(x.rank)
    is_nchw = algorithm in NCHW
    order = tuple(range(x.rank)) if is_nchw else last
    planes = is_nchw or reads_nchw(ctx, x, window)
    x = x if planes and x.strided is not None else builder.realize(x, order)
    assert x.strided is not None
    in_memory = tuple(range(spatial + 2)) if is_nchw else channels_last(spatial + 2)
    out = place.out if place is not None else builder.temp(out_shape, x.dtype, in_memory)
    packed = packed_as(ctx, weight, layout or layout_of(ctx, x, window, shape, algorithm), window)
    names = "nc" + "dhw"[-(x.rank - 2) :]
    loops = {d: builder.var(shape[d], names[d]) for d in order}
    acc = Acc(builder.fresh("acc"), "f32")
    value: Expr = acc if bias is None else call("add", acc, cast(bias.at([of(loops[1])]), "f32"))
    store = Store(*_target(out, [of(loops[d]) for d in range(x.rank)], place, spatial), cast(value, x.dtype))
    strides = tuple(x.strided.strides[d] for d in (last if planes else last[:-1]))
    operand = Operand(x.strided.buffer, x.strided.offset, strides)
    in_shape, dims = tuple(x.shape[d] for d in last), tuple(loops.values())
    builder.add(Conv(dims, (store,), builder.origin, operand, packed, ZERO, in_shape, window, acc, algorithm))
    return out


def _target(out: Tensor, indices: Sequence[Index], place: Place | None, spatial: int) -> tuple[Any, Index]:
    """The buffer and the element for indices (n, c, ...)."""
    assert out.strided is not None
    n, c, *at = indices
    at = at[-spatial:]
    if place is not None:
        at = [i * step + first for i, step, first in zip(at, place.step, place.first, strict=True)]
    flat = out.strided.offset
    for i, stride in zip((n, c, *at), out.strided.strides, strict=True):
        flat = flat + i * stride
    return out.strided.buffer, flat
