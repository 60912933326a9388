"""Transposed convolutions of 1, 2 and 3 dimensions, as plain ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir.index import ZERO, as_index
from ...ir.structured import Window
from ..core.builder import number
from ..core.constants import NchwTaps, Taps
from ..core.context import Context, ints
from ..core.registry import row
from ..core.tensor import (
    Shape,
    Tensor,
    channels_last,
    slice_dim,
    squeeze,
    unsqueeze,
)
from .conv import Place, conv, convolve
from .conv_algorithm import channels_last_algorithm, layout_of, nchw_pays
from .conv_elementwise import direct_convolution
from .conv_weights import Given, factor_of, narrowed, packs, weight_of, widens
from .direct_conv import memory_order, readable, sum_of_taps, sums_pay
from .gemm_col2im import products_of_taps, products_pay, products_side_by_side
from .matmul import widened


@row("aten.convolution.default")
def convolution(
    ctx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    if transposed:
        return conv_transpose(ctx, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(ctx, x, weight, bias, stride, padding, dilation, groups)


@row("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    ctx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Outputs whose places leave the same remainder by the stride are a plain convolution with some of the taps.

    y[s * q + r] = sum of x[q + (r + p - k * d) / s] * w[k] over the taps k for which s divides r + p - k * d
    """
    spatial = weight.rank - 2
    if widens(ctx, x):
        wide = conv_transpose(ctx, widened(ctx, x), weight, bias, stride, padding, output_padding, groups, dilation)
        return narrowed(ctx, wide, x.dtype)
    if not packs(ctx, x, weight):
        own = ints(stride, spatial), ints(padding, spatial), ints(dilation, spatial)
        return direct_convolution(ctx, x, weight, bias, *own, groups, transposed=True)
    if x.rank == spatial + 1:
        rest = (bias, stride, padding, output_padding, groups, dilation)
        return squeeze(conv_transpose(ctx, unsqueeze(x, 0), weight, *rest), 0)
    given = weight_of(ctx, weight)
    kernel = tuple(ctx.integer(n) for n in weight.shape[2:])
    steps, pads, more, dilations = (ints(v, spatial) for v in (stride, padding, output_padding, dilation))
    size = [
        (x.shape[2 + d] - 1) * steps[d] - 2 * pads[d] + dilations[d] * (kernel[d] - 1) + more[d] + 1
        for d in range(spatial)
    ]
    channels = weight.shape[1] * groups
    widest = tuple(-(-k // s) for k, s in zip(kernel, steps, strict=True))
    whole = Window(widest, (1,) * spatial, pads, dilations, groups)
    shape = (x.shape[0], channels, *size)
    if set(steps) == {1} and nchw_pays(ctx, x, whole, shape):  # one phase, of all taps
        flipped = tuple(d * (k - 1) - p for d, k, p in zip(dilations, kernel, pads, strict=True))
        if isinstance(given, Given):
            given = replace(given, taps=tuple((k - 1, -1) for k in kernel), transposed=True)
        return convolve(ctx, x, given, bias, replace(whole, pad=flipped), shape, layout=NchwTaps(groups, True))
    multiplied = products_pay(ctx, x, whole, shape)
    if multiplied and kernel == steps and set(dilations) == {1} and not any((*pads, *more)):
        factor = factor_of(ctx, given, transposed=groups)
        return products_side_by_side(ctx, x, factor, bias, kernel, as_index(channels), groups)
    summed = multiplied or sums_pay(ctx, x, whole, shape)
    order = memory_order(x, whole, shape) if summed else channels_last(x.rank)
    if summed:  # once for all phases
        x = ctx.builder.realize(readable(ctx, x, whole, shape))
    elif ctx.builder.unpadded(x)[0] is x:
        x = ctx.builder.realize(x, order)
    columns = size[-1]
    if summed and order[-1] != 1:  # as many of each remainder: rows are interleaved of them
        size[-1] = (columns + (steps[-1] - 1)) // as_index(steps[-1]) * steps[-1]
    out = ctx.builder.temp((*shape[:2], *size), x.dtype, order)
    for phase in itertools.product(*(range(s) for s in steps)):
        rows = [_phase(*v) for v in zip(kernel, steps, pads, dilations, phase, strict=True)]
        count = [(n - r + (s - 1)) // as_index(s) for n, r, s in zip(size, phase, steps, strict=True)]
        shape, place = (x.shape[0], channels, *count), Place(out, phase, steps)
        if ZERO in count:
            continue
        if not all(p.taps for p in rows):
            _fill(ctx, bias, shape, place)
            continue
        taps = tuple(_flat(at, kernel) for at in itertools.product(*(p.taps for p in rows)))
        window = Window(
            tuple(len(p.taps) for p in rows), (1,) * spatial, tuple(p.front for p in rows),
            tuple(p.dilation for p in rows), groups,
        )  # fmt: skip
        if summed:
            ahead = tuple((p.taps[0], p.step) for p in rows)
            factors = factor_of(ctx, given, None, ahead, groups), factor_of(ctx, given, Taps(), ahead, groups)
            if multiplied:
                products_of_taps(ctx, x, factors[0], bias, window, shape, place.part(shape))
            else:
                sum_of_taps(ctx, x, factors, bias, window, shape, place.part(shape))
            continue
        algorithm = channels_last_algorithm(ctx, x, window, shape, isinstance(given, Given))
        layout = layout_of(ctx, x, window, shape, algorithm, taps)
        if isinstance(given, Given):
            given = replace(given, taps=tuple((p.taps[0], p.step) for p in rows), transposed=True)
        convolve(ctx, x, given, bias, window, shape, place, layout)
    return slice_dim(out, x.rank - 1, ZERO, columns)


@dataclass(frozen=True)
class Phase:
    """One dimension of the outputs of one remainder: taps in the order of the input, and their window."""

    taps: tuple[int, ...]
    front: int
    dilation: int

    @property
    def step(self) -> int:
        """From a tap to the next."""
        return self.taps[1] - self.taps[0] if len(self.taps) > 1 else 1


def _phase(kernel: int, stride: int, pad: int, dilation: int, remainder: int) -> Phase:
    taps = [k for k in range(kernel) if (remainder + pad - k * dilation) % stride == 0]
    first = (remainder + pad - taps[-1] * dilation) // stride if taps else 0
    return Phase(tuple(reversed(taps)), -first, dilation // math.gcd(stride, dilation))


def _flat(at: Sequence[int], kernel: Sequence[int]) -> int:
    flat = 0
    for i, n in zip(at, kernel, strict=True):
        flat = flat * n + i
    return flat


def _fill(ctx: Context, bias: Tensor | None, shape: Shape, place: Place) -> None:
    """Outputs that no tap reaches."""
    part = place.part(shape)
    zero = number(0.0, part.dtype)
    ctx.builder.map(shape, part.dtype, lambda i: zero if bias is None else bias.at([i[1]]), out=part)
