"""Integer convolutions: products of patches of a map, channels last, with the weight's taps; those of single channels
as sums of their taps, channels side by side; others as sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Acc, Expr, Load, cast
from ...ir.index import ONE, ZERO, Index, as_index, maximum, minimum, of, product
from ...ir.layouts import PANEL, tap_pairs
from ...ir.nodes import Store
from ...ir.structured import Algorithm, Conv, Digits, Gemm, Patches, Quantised, Window
from ...machine.cpu import WIDEST_LANES
from ...machine.cpu_products import CONVOLUTIONS
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
    geometry = Geometry(ints(stride, spatial), ints(dilation, spatial), _sides(padding, spatial))
    zero = x_zero - RAISED.get(x.dtype, 0)
    around = any(map(any, geometry.sides)) and not -128 <= zero <= 127  # zeros that no byte can hold
    if weight is None or ctx.builder.family != "cpu" or x.dtype not in RAISED or around:

        def moved(i: list[Index]) -> Expr:
            return call("sub", cast(x.at(i), "i32"), number(x_zero, "i32"))

        centred = ctx.builder.map(x.shape, "i32", moved)
        front = [before for before, _ in geometry.sides]
        return direct_convolution(ctx, centred, w, None, geometry.stride, front, geometry.dilation, groups, False)
    if _is_depthwise(weight, groups):
        tiled = _has_tiles(weight, geometry)
        return (_by_pairs if tiled else _by_channels)(ctx, x, weight, x_zero, geometry)
    if spatial == 1:
        lifted = Geometry((1, *geometry.stride), (1, *geometry.dilation), ((0, 0), *geometry.sides))
        return squeeze(_product_of_patches(ctx, unsqueeze(x, 2), weight, x_zero, lifted, groups), 2)
    return _product_of_patches(ctx, x, weight, x_zero, geometry, groups)


@dataclass(frozen=True)
class Geometry:
    """Of windows, for each spatial dimension; sides: zeros before it and behind it."""

    stride: Sequence[int]
    dilation: Sequence[int]
    sides: Sequence[tuple[int, int]]

    def outputs(self, sizes: Sequence[Index], kernel: Sequence[int]) -> tuple[Index, ...]:
        """How many windows a padded map of these sizes has, for each dimension."""
        each = zip(sizes, kernel, self.stride, self.dilation, strict=True)
        return tuple((n - d * (k - 1) - 1) // as_index(s) + ONE for n, k, s, d in each)


def _sides(padding: Sequence[int], dims: int) -> tuple[tuple[int, int], ...]:
    """Padding as the operator has it, one number for each dimension or two."""
    numbers = ints(padding, dims) if len(padding) <= dims else [int(n) for n in padding]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True) if len(numbers) > dims else ((n, n) for n in numbers))


def _is_depthwise(weight: ConstantRef, groups: int) -> bool:
    """Whether each channel has one window of its own, of few taps."""
    outputs, inner, *kernel = weight.tensor.shape
    return outputs == groups and inner == 1 and math.prod(kernel) <= CONVOLUTIONS.unrolled_taps


def _has_tiles(weight: ConstantRef, geometry: Geometry) -> bool:
    """Whether kernels/conv/integer.h has tiles for these windows."""
    channels, _, *kernel = weight.tensor.shape
    steps = len(kernel) == 2 and geometry.stride[-1] in (1, 2) and set(geometry.dilation) == {1}
    return steps and tuple(kernel) in CONVOLUTIONS.integer_kernels and channels >= WIDEST_LANES


def _by_pairs(ctx: Context, x: Tensor, weight: ConstantRef, x_zero: int, geometry: Geometry) -> Tensor:
    """x [b, c, h, w] with a window [c, 1, h, w] for each channel -> int32 [b, c, h, w], channels last in memory.

    Tiles multiply two taps at a time; no zeros are written around x.
    """
    builder, (height, width), zero = ctx.builder, weight.tensor.shape[2:], x_zero - RAISED[x.dtype]
    shown = _bytes(ctx, x, zero, ((0, 0), (0, 0)))
    assert shown.strided is not None
    words = weight.tensor.flatten(1).t().to(torch.int32)
    pairs = [(words[a] & 0xFFFF if a is not None else 0) + (words[b] << 16) for a, b in tap_pairs(height, width)]
    packed = builder.derived(f"{weight.target}.pairs", torch.stack(pairs).contiguous())
    lost = _zero_sums(ctx, weight, zero) if zero else None
    each = zip(shown.shape[2:], geometry.sides, strict=True)
    sizes = geometry.outputs(tuple(n + sum(sides) for n, sides in each), (height, width))
    shape, last = (*shown.shape[:2], *sizes), channels_last(x.rank)
    out, loops = builder.temp(shape, "i32", last), {d: builder.var(shape[d], "nchw"[d]) for d in last}
    acc = Acc(builder.fresh("acc"), "i32")
    value: Expr = acc if lost is None else call("sub", acc, Load(lost, of(loops[1])))
    assert out.strided is not None
    store = Store(out.strided.buffer, out.place([of(loops[d]) for d in range(x.rank)]), value)
    operand = Operand(shown.strided.buffer, shown.strided.offset, tuple(shown.strided.strides[d] for d in last[:-1]))
    front = tuple(before for before, _ in geometry.sides)
    window = Window((height, width), tuple(geometry.stride), front, (1, 1), weight.tensor.shape[0])
    in_shape, dims = tuple(shown.shape[d] for d in last), tuple(loops.values())
    how: Algorithm = "integer"
    builder.add(Conv(dims, (store,), builder.origin, operand, packed, ZERO, in_shape, window, acc, how, zero))
    return out


def _by_channels(ctx: Context, x: Tensor, weight: ConstantRef, x_zero: int, geometry: Geometry) -> Tensor:
    """x [b, c, ...] with a window [c, 1, ...] for each channel -> int32 [b, c, ...], channels last in memory."""
    builder, kernel, zero = ctx.builder, weight.tensor.shape[2:], x_zero - RAISED[x.dtype]
    shown = _bytes(ctx, x, zero, geometry.sides)
    taps = builder.derived(f"{weight.target}.taps", weight.tensor.flatten(1).t().to(torch.int32).contiguous())
    lost = _zero_sums(ctx, weight, zero) if zero else None
    shape = (*shown.shape[:2], *geometry.outputs(shown.shape[2:], kernel))

    def value(i: list[Index]) -> Expr:
        total: Expr | None = None if lost is None else call("neg", Load(lost, i[1]))
        for number_of, tap in enumerate(itertools.product(*map(range, kernel))):
            each = zip(i[2:], geometry.stride, tap, geometry.dilation, strict=True)
            left = cast(shown.at([*i[:2], *(o * s + t * d for o, s, t, d in each)]), "i32")
            term = call("mul_words", left, Load(taps, i[1] + number_of * shape[1]))
            total = term if total is None else call("add", total, term)
        assert total is not None
        return total

    return builder.map(shape, "i32", value, order=channels_last(x.rank))


def _product_of_patches(
    ctx: Context, x: Tensor, weight: ConstantRef, x_zero: int, geometry: Geometry, groups: int
) -> Tensor:
    """x [b, c, h, w] or [b, c, d, h, w] with a weight [n, c / groups, ...] -> int32 [b, n, ...], channels last.

    A product for each group, or for some groups together, whose weight has zeros between them.
    """
    outputs, zero = weight.tensor.shape[0], x_zero - RAISED[x.dtype]
    kernel = (*(1 for _ in range(x.rank - weight.tensor.dim())), *weight.tensor.shape[2:])
    lost = _zero_sums(ctx, weight, zero) if zero else None
    if groups == 1 and _stays_in_planes(x, kernel, geometry):
        runs = _patches_of_planes(ctx, x, zero, kernel, geometry)
        return _products(ctx, x, runs, [_Block(weight.tensor.flatten(1), weight.target, 0)], outputs, lost, False)
    together = next(n for n in range(1, groups + 1) if groups % n == 0 and (n == groups or _fills(outputs, groups, n)))
    channels = weight.tensor.shape[1] * together
    runs = _patches_of_pixels(ctx, x, zero, channels, kernel, geometry)
    blocks = [_Block(weight.tensor, weight.target, 0)]
    if groups > 1:
        blocks = [
            _Block(_block(weight.tensor, groups, together, i), f"{weight.target}.block{i}", i * channels)
            for i in range(groups // together)
        ]
    return _products(ctx, x, runs, blocks, outputs, lost, True)


@dataclass(frozen=True)
class _Runs:
    """A map in memory and the patches in it; sizes: of the outputs, without their channels."""

    shown: Strided
    patches: Patches
    sizes: tuple[Index, ...]


@dataclass(frozen=True)
class _Block:
    """The weight of some groups, its constant's name, and where their first channel lies in a pixel."""

    weight: torch.Tensor
    name: str
    offset: int


def _stays_in_planes(x: Tensor, kernel: Sequence[int], geometry: Geometry) -> bool:
    """Whether patches are taken from NCHW: a map with few channels beside each other is slow to make."""
    if x.dtype != "i8" or x.rank != 4 or x.strided is None or x.strided.strides[-1] != ONE:
        return False
    channels = x.shape[1].constant
    few = channels is not None and channels <= CONVOLUTIONS.integer_planes
    return few and kernel[-1] > 1 and geometry.dilation[-1] == 1


def _patches_of_planes(ctx: Context, x: Tensor, zero: int, kernel: Sequence[int], geometry: Geometry) -> _Runs:
    """Windows of x [b, c, h, w]: values of k go over channels, lines and then pixels."""
    shown = x
    if any(map(any, geometry.sides)):
        shown = _bordered(ctx, x, zero, ((0, 0), (0, 0), *geometry.sides), range(x.rank))
    assert shown.strided is not None
    image, plane, *steps = shown.strided.strides
    sizes = geometry.outputs(shown.shape[2:], kernel)
    rows = Digits((x.shape[0], *sizes), (image, *(n * s for n, s in zip(steps, geometry.stride, strict=True))))
    taps = Digits((x.shape[1], as_index(kernel[0])), (plane, steps[0] * geometry.dilation[0]))
    return _Runs(shown.strided, Patches(rows, taps, kernel[1]), sizes)


def _patches_of_pixels(
    ctx: Context, x: Tensor, zero: int, channels: int, kernel: Sequence[int], geometry: Geometry
) -> _Runs:
    """Windows of x, channels last, of so many of its channels: values of k go over pixels and then channels."""
    shown = _bytes(ctx, x, zero, geometry.sides)
    assert shown.strided is not None
    image, _, *steps = shown.strided.strides
    sizes = geometry.outputs(shown.shape[2:], kernel)
    rows = Digits((x.shape[0], *sizes), (image, *(n * s for n, s in zip(steps, geometry.stride, strict=True))))
    side_by_side = geometry.dilation[-1] == 1 and steps[-1] == as_index(channels)
    taken = (*kernel[:-1], 1 if side_by_side else kernel[-1])
    taps = Digits(tuple(map(as_index, taken)), tuple(n * d for n, d in zip(steps, geometry.dilation, strict=True)))
    return _Runs(shown.strided, Patches(rows, taps, channels * math.prod(kernel) // math.prod(taken)), sizes)


def _products(
    ctx: Context, x: Tensor, runs: _Runs, blocks: Sequence[_Block], outputs: int, lost: Buffer | None, taps: bool
) -> Tensor:
    """Products of patches with the weights of blocks of outputs. lost: what is taken off. taps: as of LinePanels."""
    builder, rows = ctx.builder, runs.patches.rows
    out = builder.temp((product(rows.extents), as_index(outputs)), "i32")
    assert out.strided is not None
    each = outputs // len(blocks)
    for number_of, block in enumerate(blocks):
        k = math.prod(block.weight.shape[1:])
        packed = builder.constant(block.name, block.weight, LinePanels(8, k, taps=taps))
        m, n = builder.var(product(rows.extents), "m"), builder.var(as_index(each), "n")
        acc, column = Acc(builder.fresh("acc"), "i32"), of(n) + number_of * each
        value: Expr = acc if lost is None else call("sub", acc, Load(lost, column))
        store = Store(out.strided.buffer, out.place([of(m), column]), value)
        left = Operand(runs.shown.buffer, runs.shown.offset + block.offset, ())
        right = Operand(packed, ZERO, ())
        how = Quantised(8, patches=runs.patches)
        builder.add(Gemm((m, n), (store,), builder.origin, as_index(k), left, right, True, acc, quantised=how))
    shape = (x.shape[0], as_index(outputs), *runs.sizes)
    return Tensor(shape, "i32", Strided(out.strided.buffer, dense_strides(shape, channels_last(x.rank))))


def _fills(outputs: int, groups: int, together: int) -> bool:
    return outputs // groups * together >= PANEL


def _block(weight: torch.Tensor, groups: int, together: int, block: int) -> torch.Tensor:
    """The weight [n / groups * together, c / groups * together, ...] of some groups, with zeros between them."""
    outputs, inner = weight.shape[0] // groups, weight.shape[1]
    made = weight.new_zeros(outputs * together, inner * together, *weight.shape[2:])
    for i in range(together):
        first = (block * together + i) * outputs
        made[i * outputs : (i + 1) * outputs, i * inner : (i + 1) * inner] = weight[first : first + outputs]
    return made


def _bytes(ctx: Context, x: Tensor, zero: int, sides: Sequence[tuple[int, int]]) -> Tensor:
    """x as int8 with its zero around it, channels last in memory; x itself where it is that."""
    last = channels_last(x.rank)
    if x.dtype == "i8" and not any(map(any, sides)) and x.strided is not None and x.strided.strides[1] == ONE:
        return x
    # a map of its own, which may be a part of what computes x: one with borders never is
    whole = ctx.builder.map(x.shape, "i8", lambda i: _lowered(x, i), order=last) if x.dtype != "i8" else x
    if not any(map(any, sides)):
        return whole if whole is not x else ctx.builder.map(x.shape, "i8", x.at, order=last)
    borders = ((0, 0), (0, 0), *sides)
    lines = _lines(whole)
    if lines is None:
        return _bordered(ctx, whole, zero, borders, last)
    channels, shape = whole.shape[1], tuple(n + sum(own) for n, own in zip(x.shape, borders, strict=True))
    row = [channels * n for n in sides[-1]]
    out = _bordered(ctx, lines, zero, ((0, 0), *sides[:-1], row), range(lines.rank))
    assert out.strided is not None
    return Tensor(shape, "i8", Strided(out.strided.buffer, dense_strides(shape, last)))


def _lines(x: Tensor) -> Tensor | None:
    """x [b, c, ..., w] as [b, ..., w * c], where the channels of a line's pixels lie side by side."""
    if x.strided is None or x.strided.strides[1] != ONE or x.strided.strides[-1] != x.shape[1]:
        return None
    image, _, *steps = x.strided.strides
    view = Strided(x.strided.buffer, (image, *steps[:-1], ONE), x.strided.offset)
    return Tensor((x.shape[0], *x.shape[2:-1], x.shape[1] * x.shape[-1]), x.dtype, view)


def _bordered(ctx: Context, x: Tensor, zero: int, sides: Sequence[Sequence[Any]], order: Sequence[int]) -> Tensor:
    """x with so many elements `zero` before and behind each dimension, a new tensor in memory."""

    def value(i: list[Index]) -> Expr:
        places = [at - own[0] for at, own in zip(i, sides, strict=True)]
        found = x.at([minimum(maximum(at, ZERO), n - 1) for at, n in zip(places, x.shape, strict=True)])
        for at, n, own in zip(places, x.shape, sides, strict=True):
            for condition in within(at, n) if any(n != ZERO for n in map(as_index, own)) else []:
                found = where(condition, found, number(zero, "i8"))
        return found

    shape = tuple(n + own[0] + own[1] for n, own in zip(x.shape, sides, strict=True))
    return ctx.builder.map(shape, "i8", value, order=order)


def _lowered(x: Tensor, i: list[Index]) -> Expr:
    """A value of another type, moved into the range of int8."""
    return cast(call("sub", cast(x.at(i), "i32"), number(RAISED[x.dtype], "i32")), "i8")


def _zero_sums(ctx: Context, weight: ConstantRef, zero: int) -> Buffer:
    """What the zero of the map adds to each output: a constant of its own, int32 [n]."""
    target = f"{weight.target}.zero{'_' if zero < 0 else ''}{abs(zero)}"
    return ctx.builder.derived(target, (weight.tensor.flatten(1).to(torch.int64).sum(1) * zero).to(torch.int32))
