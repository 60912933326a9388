"""Weights of convolutions: constants in the layout of a kernel, or tensors that are laid out in the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...ir.buffers import Buffer
from ...ir.dtypes import from_torch
from ...ir.expr import Expr, IndexValue, Load, cast
from ...ir.index import ONE, ZERO, Index, as_index, minimum
from ...ir.layouts import NCHW_WIDTH, PANEL
from ...ir.structured import Window
from ..core.builder import compare, number, where
from ..core.constants import (
    ConvPanels,
    GroupedTaps,
    Layout,
    NchwTaps,
    Taps,
    TapsLast,
    WinogradPanels,
)
from ..core.context import ConstantRef, Context
from ..core.tensor import Tensor
from .direct_conv import Weight
from .matmul import HALVES, PACKED


def packs(ctx: Context, x: Tensor, weight: Tensor) -> bool:
    """Whether the weight has a type that has panels, and sizes that are numbers; on a GPU, a type of products."""
    fixed = all(n.constant is not None for n in (*weight.shape, x.shape[1 - weight.rank]))
    known = weight.dtype in PACKED and fixed
    return ctx.takes_product(x.dtype) and (known or ctx.builder.family == "cuda")


def widens(ctx: Context, x: Tensor) -> bool:
    """Whether the convolution runs in float32, with a weight of 16 bits."""
    return x.dtype in HALVES and not ctx.takes_product(x.dtype)


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
        made = ctx.builder.map((*counts, groups), _held(ctx, w), lambda i: value(i[-1], ZERO, i[:-1]))
    elif isinstance(layout, TapsLast):
        shape = (outputs * groups, *counts, inputs)
        made = ctx.builder.map(shape, w.dtype, lambda i: value(i[0], i[-1], i[1:-1]))
    else:
        own = (groups, outputs) if not isinstance(layout, GroupedTaps) else (ONE, outputs * groups)
        form = _arrangement(layout, len(counts), ctx.integer(own[1]))
        made = _arranged(ctx, form, value, _Sizes(*own, inputs, counts), _held(ctx, w))
    assert made.strided is not None
    return made.strided.buffer


def _held(ctx: Context, weight: Tensor) -> str:
    """The element type of a packed weight."""
    return weight.dtype if ctx.takes_product(weight.dtype) else "f32"


class _Sizes(NamedTuple):
    groups: Index
    outputs: Index
    inputs: Index
    taps: tuple[Index, ...]


class _Arrangement(NamedTuple):
    """The dimensions of a layout in their order: group, panel, input, output in the panel, and numbers of taps' ones.

    width: outputs of a panel. twice: a panel half full has its outputs twice; else zeros stand behind them.
    """

    order: tuple[str | int, ...]
    width: int
    twice: bool = False


def _arrangement(layout: Layout, dims: int, outputs: int) -> _Arrangement:
    """Of the weight [outputs, inputs, ...] of a group, with so many dimensions of taps; see constants.py."""
    taps = tuple(range(dims))
    if isinstance(layout, NchwTaps):
        width = min(outputs, NCHW_WIDTH)
        return _Arrangement(("group", "panel", *taps[:-1], "input", taps[-1], "output"), width)
    if isinstance(layout, WinogradPanels):
        return _Arrangement(("group", *taps[:-2], "panel", "input", *taps[-2:], "output"), PANEL)
    twice = isinstance(layout, ConvPanels) and outputs % PANEL == PANEL // 2
    return _Arrangement(("group", "panel", *taps, "input", "output"), PANEL, twice)


def _arranged(
    ctx: Context,
    form: _Arrangement,
    value: Callable[[Index, Index, Sequence[Index]], Expr],
    sizes: _Sizes,
    dtype: str,
) -> Tensor:
    """value(output, channel, taps) of every element in the order of a layout."""
    outputs = sizes.outputs
    extents: dict[str | int, Index] = {
        "group": sizes.groups, "panel": (outputs + (form.width - 1)) // as_index(form.width),
        "input": sizes.inputs, "output": as_index(form.width), **dict(enumerate(sizes.taps)),
    }  # fmt: skip
    full = (outputs % as_index(form.width)) == ZERO

    def element(i: Sequence[Index]) -> Expr:
        at = dict(zip(form.order, i, strict=True))
        own = at["panel"] * form.width + at["output"]
        inside = minimum(own, outputs - 1)
        if form.twice:
            inside = own - own // outputs * (form.width // 2)
        taps = [at[d] for d in range(len(sizes.taps))]
        found = cast(value(at["group"] * outputs + inside, at["input"], taps), dtype)
        if full or form.twice:
            return found
        return where(compare("lt", IndexValue(own), IndexValue(outputs)), found, number(0.0, dtype))

    return ctx.builder.map(tuple(extents[d] for d in form.order), dtype, element)


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
