"""Weights of convolutions: constants in the layout of a kernel, or tensors that are laid out in the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.buffers import Buffer
from ..ir.dtypes import from_torch
from ..ir.expr import Expr, Load, cast
from ..ir.index import ZERO, Index, as_index
from ..ir.structured import Window
from .constants import Layout, Taps
from .context import ConstantRef, Context
from .matmul import HALVES, PACKED
from .tap_sums import Weight
from .tensor import Tensor


def packs(ctx: Context, x: Tensor) -> bool:
    """Whether the weight is a constant of a type that has panels; on a GPU, one of a type of products."""
    ref = ctx.constant(1, "weight")
    known = ref is not None and from_torch(ref.tensor.dtype) in PACKED
    return ctx.takes_product(x.dtype) and (known or ctx.builder.family == "cuda")


def widens(ctx: Context, x: Tensor) -> bool:
    """Whether the convolution runs in float32, with a weight that is a constant of 16 bits."""
    return x.dtype in HALVES and not ctx.takes_product(x.dtype) and ctx.constant(1, "weight") is not None


def narrowed(ctx: Context, y: Tensor, dtype: str) -> Tensor:
    return ctx.builder.map(y.shape, dtype, y.at, order=y.memory_order())


def kernel_of(ctx: Context, weight: Tensor) -> tuple[int, ...]:
    return tuple(ctx.integer(n) for n in weight.shape[2:])


@dataclass(frozen=True)
class Given:
    """A weight that is no constant; tap t of a window's dimension is its tap first + t * step (None: t)."""

    tensor: Tensor
    taps: tuple[tuple[int, int], ...] | None = None
    transposed: bool = False


def weight_of(ctx: Context, weight: Tensor) -> ConstantRef | Given:
    ref = ctx.constant(1, "weight")
    if ref is None or from_torch(ref.tensor.dtype) not in PACKED:
        return Given(weight)
    return ref if ctx.takes_product(from_torch(ref.tensor.dtype)) else replace(ref, tensor=ref.tensor.float())


def packed_as(ctx: Context, weight: ConstantRef | Given, layout: Layout, window: Window) -> Buffer:
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


def factor_of(
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
