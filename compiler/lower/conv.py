"""Convolutions of 1, 2 and 3 dimensions: channels-last implicit GEMM, or Winograd's; transposed ones as plain ones.

1-d ones are 2-d ones of height 1. Zeros around the input are no copy: neither a convolution's own padding nor that of
an operator in front of it, on whichever sides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..ir.buffers import Buffer, Operand
from ..ir.dtypes import from_torch
from ..ir.expr import Acc, Expr, Load, cast
from ..ir.index import ONE, ZERO, Index, as_index, of, product
from ..ir.nodes import Store
from ..ir.structured import WINOGRAD_FORMS, Algorithm, Conv, Window
from ..tune.keys import conv_key
from ..tune.space import algorithms
from .builder import call, number
from .constants import PANEL, ConvPanels, GroupedTaps, Layout, PlaneTaps, Taps, TapsLast, WinogradPanels
from .context import ConstantRef, Context, ints
from .direct_conv import direct_convolution
from .matmul import HALVES, PACKED, widened
from .registry import row
from .tap_products import products_of_taps, products_pay
from .tap_sums import Weight, memory_order, readable, sum_of_taps, sums_pay
from .tensor import Shape, Strided, Tensor, channels_last, slice_dim, squeeze, unsqueeze


class Least(NamedTuple):
    """Channels, and pixels of the output, from which on one of Winograd's convolutions pays.

    unknown: whether it is taken for maps whose size the run finds. Tiles of 3x3 outputs have weights 2.8 times as large
    as the plain ones. They pay from 144 pixels on, but maps of so few come with many channels: their weights are stored
    as taps, and transformed in each run.
    """

    channels: int
    pixels: int
    unknown: bool = True


WINOGRAD_LEAST = {
    "winograd2": Least(32, 36),
    "winograd2s2": Least(64, 36),
    "winograd3taps": Least(32, 144, unknown=False),
    "winograd3": Least(32, 400, unknown=False),
    "winograd4": Least(32, 144),
}
GROUPED = (2, 4, 8)  # channels of a group that have a kernel of their own
PLANES = 4  # channels of an input that is read as it lies
PLANE_OUTPUTS = 8  # of a convolution that writes planes too: half of a panel


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
    if _widens(ctx, x):
        return _narrowed(ctx, conv(ctx, widened(ctx, x), weight, bias, stride, padding, dilation, groups), x.dtype)
    if not _packs(ctx, x):
        own = ints(stride, spatial), _padding(padding, _kernel(ctx, weight), ints(dilation, spatial))[0]
        return direct_convolution(ctx, x, weight, bias, *own, ints(dilation, spatial), groups, transposed=False)
    if x.rank == spatial + 1:
        return squeeze(conv(ctx, unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0)
    kernel = tuple(ctx.integer(n) for n in weight.shape[2:])
    steps, dilations = ints(stride, spatial), ints(dilation, spatial)
    front, total = _padding(padding, kernel, dilations)
    size = [_out_size(x.shape[2 + d] + total[d], kernel[d], steps[d], dilations[d]) for d in range(spatial)]
    shape = (x.shape[0], weight.shape[0], *size)
    packed = _weight(ctx, weight)
    return convolve(ctx, x, packed, bias, Window(kernel, steps, front, dilations, groups), shape)


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


def _packs(ctx: Context, x: Tensor) -> bool:
    """Whether the weight is a constant of a type that has panels; on a GPU, one of a type of products."""
    ref = ctx.constant(1, "weight")
    known = ref is not None and from_torch(ref.tensor.dtype) in PACKED
    return ctx.takes_product(x.dtype) and (known or ctx.builder.family == "cuda")


def _widens(ctx: Context, x: Tensor) -> bool:
    """Whether the convolution runs in float32, with a weight that is a constant of 16 bits."""
    return x.dtype in HALVES and not ctx.takes_product(x.dtype) and ctx.constant(1, "weight") is not None


def _narrowed(ctx: Context, y: Tensor, dtype: str) -> Tensor:
    return ctx.builder.map(y.shape, dtype, y.at, order=y.memory_order())


def _kernel(ctx: Context, weight: Tensor) -> tuple[int, ...]:
    return tuple(ctx.integer(n) for n in weight.shape[2:])


@dataclass(frozen=True)
class Given:
    """A weight that is no constant; tap t of a window's dimension is its tap first + t * step (None: t)."""

    tensor: Tensor
    taps: tuple[tuple[int, int], ...] | None = None
    transposed: bool = False


def _weight(ctx: Context, weight: Tensor) -> ConstantRef | Given:
    ref = ctx.constant(1, "weight")
    if ref is None or from_torch(ref.tensor.dtype) not in PACKED:
        return Given(weight)
    return ref if ctx.takes_product(from_torch(ref.tensor.dtype)) else replace(ref, tensor=ref.tensor.float())


def _packed(ctx: Context, weight: ConstantRef | Given, layout: Layout, window: Window) -> Buffer:
    """The weight in memory as a layout has it."""
    if isinstance(weight, ConstantRef):
        return ctx.builder.constant(weight.target, weight.tensor, layout)
    w, groups = weight.tensor, as_index(window.groups)
    taps = weight.taps or ((0, 1),) * (w.rank - 2)
    counts = tuple(as_index(n) for n in window.kernel[-len(taps) :])
    inputs, outputs = (w.shape[0] // groups, w.shape[1]) if weight.transposed else (w.shape[1], w.shape[0] // groups)

    def value(out: Index, channel: Index, at: Sequence[Index]) -> Expr:
        places = [i * step + first for i, (first, step) in zip(at, taps, strict=True)]
        if weight.transposed:
            return w.at([out // outputs * inputs + channel, out % outputs, *places])
        return w.at([out, channel, *places])

    if isinstance(layout, Taps):
        made = ctx.builder.map((*counts, groups), w.dtype, lambda i: value(i[-1], ZERO, i[:-1]))
    else:
        shape = (outputs * groups, *counts, inputs)
        made = ctx.builder.map(shape, w.dtype, lambda i: value(i[0], i[-1], i[1:-1]))
    assert made.strided is not None
    return made.strided.buffer


def _factor(
    ctx: Context,
    weight: ConstantRef | Given,
    layout: Taps | None = None,
    taps: Sequence[tuple[int, int]] = (),
    transposed: int = 0,
) -> Weight:
    """The elements of a weight [outputs, inputs, ...], of which each group has one input where it lies in a layout.

    taps: as Given has them. transposed: the groups of a transposed convolution, whose weight is [inputs, outputs, ..].
    """
    sizes = tuple(as_index(n) for n in weight.tensor.shape)

    def element(output: Index, channel: Index, at: Sequence[Index]) -> Expr:
        places = [i * step + first for i, (first, step) in zip(at, taps, strict=True)] if taps else list(at)
        first, second = output, channel
        if transposed:
            first, second = output // sizes[1] * (sizes[0] // as_index(transposed)) + channel, output % sizes[1]
        if isinstance(weight, Given):
            return cast(weight.tensor.at([first, second, *places]), "f32")
        flat = ZERO if layout else first * sizes[1] + second
        for i, n in zip(places, sizes[2:], strict=True):
            flat = flat * n + i
        place = flat * sizes[0] + output if layout else flat
        return cast(Load(ctx.builder.constant(weight.target, weight.tensor, layout), place), "f32")

    return element


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


# plain ---------------------------------------------------------------------------------------------------------------
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
    """x [n, c, ...] with the packed weight -> `shape`, which lies in memory channels-last, or at `place`.

    window.pad: zeros in front; those behind follow from `shape`. layout: of the weight; None: this function's choice.
    """
    if not ctx.takes_product(x.dtype):
        raise ctx.refuse(f"convolutions of {x.dtype} are not supported on this target")
    builder, spatial = ctx.builder, x.rank - 2
    x, zeros = builder.unpadded(x)
    window = window.moved(zeros[2:])
    if layout is None and place is None and products_pay(ctx, x, window, shape):
        return products_of_taps(ctx, x, _factor(ctx, weight), bias, window, shape)
    if layout is None and place is None and sums_pay(ctx, x, window, shape):
        return sum_of_taps(ctx, x, (_factor(ctx, weight), _factor(ctx, weight, Taps())), bias, window, shape)
    out_shape = shape
    if spatial == 1:
        x, window = unsqueeze(x, 2), window.lifted()
        shape = (*shape[:2], ONE, shape[2])
    algorithm = _algorithm(ctx, x, window, shape) if layout is None and place is None else _given_algorithm(layout)
    last = channels_last(x.rank)
    order = tuple(range(x.rank)) if algorithm == "planes" else last
    planes = algorithm == "planes" or _takes_planes(ctx, x, window)
    x = x if planes and x.strided is not None else builder.realize(x, order)
    assert x.strided is not None
    in_memory = tuple(range(spatial + 2)) if algorithm == "planes" else channels_last(spatial + 2)
    out = place.out if place is not None else builder.temp(out_shape, x.dtype, in_memory)
    packed = _packed(ctx, weight, layout or _layout(ctx, x, window, shape, algorithm), window)
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


def _takes_planes(ctx: Context, x: Tensor, window: Window) -> bool:
    """Whether the kernel reads planes of channels as they are: it copies an input of few channels in any case."""
    if x.strided is None or ctx.builder.family != "cpu" or x.strided.strides[1] == ONE:
        return False
    few = (x.shape[1].constant or PLANES + 1) <= PLANES
    return few and window.groups == 1 and window.kernel[-1] > 1 and window.dilation[-1] == 1


def _depthwise(x: Tensor, window: Window, shape: Shape) -> bool:
    groups = as_index(window.groups)
    return window.groups > 1 and x.rank == 4 and x.shape[1] == groups and shape[1] == groups


def _layout(ctx: Context, x: Tensor, window: Window, shape: Shape, algorithm: Algorithm) -> Layout:
    if _depthwise(x, window, shape):
        return Taps()
    if ctx.builder.family == "cuda":
        return TapsLast()
    if algorithm == "grouped":
        return GroupedTaps()
    if algorithm == "planes":
        return PlaneTaps()
    if algorithm != "direct":
        return WinogradPanels(*WINOGRAD_FORMS[algorithm])
    return ConvPanels(window.groups)


def _in_small_groups(ctx: Context, channels: int, outputs: int, groups: int) -> bool:
    """Whether the groups have so few channels that a kernel of their own takes several of them in a vector."""
    same = channels == outputs and channels % PANEL == 0
    return ctx.builder.family == "cpu" and same and channels // groups in GROUPED


def _stays_in_planes(ctx: Context, x: Tensor, window: Window, shape: Shape) -> bool:
    """Whether few channels become so few that panels of them are mostly empty, and none of them lie side by side."""
    few = ctx.integer(x.shape[1]) <= PLANES and ctx.integer(shape[1]) <= PLANE_OUTPUTS
    lies = x.strided is None or x.strided.strides[1] != ONE
    return few and lies and window.groups == 1 and x.dtype == "f32"


def _given_algorithm(layout: Layout | None) -> Algorithm:
    """What reads a weight of this layout."""
    return "grouped" if isinstance(layout, GroupedTaps) else "direct"


def _algorithm(ctx: Context, x: Tensor, window: Window, shape: Shape) -> Algorithm:
    """Grouped ones where groups have few channels; else what was chosen, or Winograd's where its transforms pay."""
    channels, outputs = ctx.integer(x.shape[1]), ctx.integer(shape[1])
    if ctx.builder.family != "cpu":
        return "direct"
    if _in_small_groups(ctx, channels, outputs, window.groups):
        return "grouped"
    if _stays_in_planes(ctx, x, window, shape):
        return "planes"
    order = channels_last(x.rank)
    key = conv_key(x.dtype, [x.shape[d] for d in order], [shape[d] for d in order], window)
    chosen = ctx.builder.choices.shared(key, "algorithm", "")
    allowed = algorithms(ctx.builder.winograd, window)
    for algorithm in allowed:
        if algorithm == chosen:
            return algorithm
    pixels = product(shape[2:]).constant
    for algorithm in reversed(allowed):
        least = WINOGRAD_LEAST.get(algorithm)
        if (
            least
            and min(channels, outputs) >= least.channels
            and (least.unknown if pixels is None else pixels >= least.pixels)
        ):
            return algorithm
    return "direct"


# transposed ----------------------------------------------------------------------------------------------------------
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
    if _widens(ctx, x):
        wide = conv_transpose(ctx, widened(ctx, x), weight, bias, stride, padding, output_padding, groups, dilation)
        return _narrowed(ctx, wide, x.dtype)
    if not _packs(ctx, x):
        own = ints(stride, spatial), ints(padding, spatial), ints(dilation, spatial)
        return direct_convolution(ctx, x, weight, bias, *own, groups, transposed=True)
    if x.rank == spatial + 1:
        rest = (bias, stride, padding, output_padding, groups, dilation)
        return squeeze(conv_transpose(ctx, unsqueeze(x, 0), weight, *rest), 0)
    given = _weight(ctx, weight)
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
    multiplied = products_pay(ctx, x, whole, shape)
    summed = multiplied or sums_pay(ctx, x, whole, shape)
    order = memory_order(x, whole, shape) if summed else channels_last(x.rank)
    if summed:  # once for all phases
        x = ctx.builder.realize(readable(ctx, x, whole, shape))
    elif ctx.builder.unpadded(x)[0] is x:
        x = ctx.builder.realize(x, order)
    columns = size[-1]
    if summed and order[-1] != 1:  # as many of each remainder: rows are woven of them
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
            factors = _factor(ctx, given, None, ahead, groups), _factor(ctx, given, Taps(), ahead, groups)
            if multiplied:
                products_of_taps(ctx, x, factors[0], bias, window, shape, place.part(shape))
            else:
                sum_of_taps(ctx, x, factors, bias, window, shape, place.part(shape))
            continue
        layout = _phase_layout(ctx, x, weight, groups, taps)
        if isinstance(given, Given):
            given = replace(given, taps=tuple((p.taps[0], p.step) for p in rows), transposed=True)
        convolve(ctx, x, given, bias, window, shape, place, layout)
    return slice_dim(out, x.rank - 1, ZERO, columns)


def _phase_layout(ctx: Context, x: Tensor, weight: Tensor, groups: int, taps: tuple[int, ...]) -> Layout:
    """Of the weight of a transposed convolution for the outputs that these taps make."""
    channels, outputs = ctx.integer(x.shape[1]), ctx.integer(weight.shape[1]) * groups
    if groups > 1 and weight.rank < 5 and channels == outputs == groups:
        return Taps(taps)
    if _in_small_groups(ctx, channels, outputs, groups):
        return GroupedTaps(taps, transposed=groups)
    return (TapsLast if ctx.builder.family == "cuda" else ConvPanels)(groups, taps, transposed=True)


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
