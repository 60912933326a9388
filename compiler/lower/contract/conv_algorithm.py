"""Which kernel computes a convolution, and the layout of its weight: by channels, windows and sizes of maps.

Some are fewer products by the law `winograd` of ir/laws.py.
"""

from __future__ import annotations

import math

from ...ir.index import ONE, as_index, product
from ...ir.layouts import PANEL
from ...ir.structured import WINOGRAD_FORMS, Algorithm, Window
from ...machine.cpu_products import CONVOLUTIONS, WINOGRAD
from ...tune.choices.keys import conv_key
from ...tune.choices.space import algorithms
from ..core.constants import (
    ConvPanels,
    GroupedTaps,
    Layout,
    NchwTaps,
    PhaseTaps,
    Taps,
    TapsLast,
    WinogradPanels,
)
from ..core.context import Context
from ..core.tensor import Shape, Tensor, channels_last
from .direct_conv import (
    FEW,
    LANES,
    TILED,
    lacks_tiles,
    lies_channels_last,
    stays_nchw,
    unrolled,
)

GROUPED = (2, 4, 8)  # channels of a group that have a kernel of their own
PLANES = 4  # channels of an input that panels read as it lies


def reads_nchw(ctx: Context, x: Tensor, window: Window) -> bool:
    """Whether the kernel reads planes of channels as they are: it copies an input of few channels in any case."""
    if x.strided is None or ctx.builder.family != "cpu" or x.strided.strides[1] == ONE:
        return False
    few = (x.shape[1].constant or PLANES + 1) <= PLANES
    return few and window.groups == 1 and window.kernel[-1] > 1 and window.dilation[-1] == 1


def _depthwise(x: Tensor, window: Window, shape: Shape) -> bool:
    groups = as_index(window.groups)
    return window.groups > 1 and x.rank < 5 and x.shape[1] == groups and shape[1] == groups


def layout_of(
    ctx: Context, x: Tensor, window: Window, shape: Shape, algorithm: Algorithm, taps: tuple[int, ...] | None = None
) -> Layout:
    """Of the weight that an algorithm reads. taps: those of a phase of a transposed convolution, in the order of its
    window; None: of a plain convolution."""
    plain = taps is None
    if _depthwise(x, window, shape):
        return Taps(taps)
    if ctx.builder.family == "cuda":
        return TapsLast() if plain else TapsLast(window.groups, taps, transposed=True)
    if algorithm == "grouped":
        return GroupedTaps(taps, transposed=0 if plain else window.groups)
    if algorithm in WINOGRAD_FORMS:
        phase = None if taps is None else PhaseTaps(taps, window.kernel)
        return WinogradPanels(*WINOGRAD_FORMS[algorithm], window.groups, phase)
    return ConvPanels(window.groups, taps, transposed=not plain)


def in_small_groups(ctx: Context, channels: int, outputs: int, groups: int) -> bool:
    """Whether the groups have so few channels that a kernel of their own takes several of them in a vector."""
    same = channels == outputs and channels % PANEL == 0
    return ctx.builder.family == "cpu" and same and channels // groups in GROUPED


def algorithm_for(layout: Layout) -> Algorithm:
    """What reads a weight of this layout."""
    if isinstance(layout, WinogradPanels):
        return next(a for a, form in WINOGRAD_FORMS.items() if form == (layout.edge, layout.stride, layout.taps))
    return "grouped" if isinstance(layout, GroupedTaps) else "nchw" if isinstance(layout, NchwTaps) else "direct"


def nchw_pays(ctx: Context, x: Tensor, window: Window, shape: Shape) -> bool:
    """Whether a convolution of x [n, c, ...] to `shape` is one in NCHW: a panel of its outputs would be half empty at
    least, and neither a sum over its taps nor a product for all of them takes less time."""
    inputs, outputs = ctx.integer(x.shape[1]), ctx.integer(shape[1])
    if ctx.builder.family != "cpu" or x.dtype != "f32" or set(window.kernel) == {1}:
        return False
    if window.groups != 1:
        return _groups_pay(ctx, x, inputs, outputs, window)
    if outputs > CONVOLUTIONS.nchw_outputs:
        return _nchw_is_asked_for(ctx, x, inputs, window)
    if (x.rank == 5 and inputs > FEW) or _sums_are_less(inputs, outputs, window):
        return False
    if inputs > 1 and lies_channels_last(x):  # to be transposed first
        large = math.prod(window.kernel) >= CONVOLUTIONS.transposed_taps
        return inputs <= CONVOLUTIONS.nchw_inputs and large and set(window.stride) == {1}
    return inputs <= CONVOLUTIONS.nchw_inputs * (1 if outputs <= CONVOLUTIONS.strided_columns else 2)


def _groups_pay(ctx: Context, x: Tensor, channels: int, outputs: int, window: Window) -> bool:
    """Whether one of so many channels, in groups of few, is in NCHW: else those of one channel are sums over their
    taps, or tiles of channels last, as all other groups are."""
    of, to = channels // window.groups, outputs // window.groups
    if of > FEW or to > CONVOLUTIONS.nchw_outputs or lies_channels_last(x):
        return False
    width, step, dilated = window.kernel[-1], window.stride[-1], window.dilation[-1] > 1
    summed = of == 1 and lacks_tiles(x, channels, outputs)
    if not (summed or stays_nchw(ctx, x)):
        return False
    if x.rank == 3:
        return of > 1 or not _sums_are_less(1, to, window)
    if of == 1:
        return summed and (dilated or (x.rank == 4 and channels < LANES and width >= TILED))
    if x.rank == 5:
        return step == 1 and of * width >= CONVOLUTIONS.deep_products
    return width >= CONVOLUTIONS.overlap * step


def _nchw_is_asked_for(ctx: Context, x: Tensor, inputs: int, window: Window) -> bool:
    """Whether many outputs stay in NCHW: panels would write them channels last, to be transposed for who reads
    them."""
    if x.rank == 5 or (x.rank == 4 and window.stride[-1] > CONVOLUTIONS.stride) or inputs > FEW:
        return False
    return stays_nchw(ctx, x)


def _sums_are_less(inputs: int, outputs: int, window: Window) -> bool:
    """Whether windows hardly overlap, or each row is read once for all windows that have begun."""
    if max(inputs, outputs) > FEW or set(window.dilation) != {1}:
        return False
    step, width = window.stride[-1], window.kernel[-1]
    if len(window.kernel) == 1:
        return width <= step or (outputs == 1 and width <= step + 1)
    return unrolled(inputs, window) and (outputs == 1 or step > 1)


def _transposing_pays(ctx: Context, x: Tensor, window: Window, shape: Shape) -> bool:
    """Whether a direct convolution turns the blocks of its operand and results, for both stay in NCHW."""
    channels = x.shape[1].constant or 0
    if ctx.builder.family != "cpu" or x.dtype != "f32" or _depthwise(x, window, shape):
        return False
    if x.strided is None or x.strided.strides[-1] != ONE:
        return False
    return channels % PANEL == 0 and set(window.kernel) != {1} and stays_nchw(ctx, x)


def algorithm_of(ctx: Context, x: Tensor, window: Window, shape: Shape, computed: bool = False) -> Algorithm:
    """What multiplies panels or taps of x [n, c, ...] to `shape`; a direct one is transposed where planes stay
    planes."""
    algorithm = channels_last_algorithm(ctx, x, window, shape, computed)
    return "transposing" if algorithm == "direct" and _transposing_pays(ctx, x, window, shape) else algorithm


def channels_last_algorithm(ctx: Context, x: Tensor, window: Window, shape: Shape, computed: bool = False) -> Algorithm:
    """Grouped ones where groups have few channels; else what was chosen, or Winograd's where its transforms pay.

    computed: the weight is no constant: of Winograd's there are those whose kernel transforms taps itself.
    """
    channels, outputs = ctx.integer(x.shape[1]), ctx.integer(shape[1])
    if ctx.builder.family != "cpu":
        return "direct"
    if in_small_groups(ctx, channels, outputs, window.groups):
        return "grouped"
    order = channels_last(x.rank)
    key = conv_key(x.dtype, [x.shape[d] for d in order], [shape[d] for d in order], window)
    chosen = ctx.builder.choices.shared(key, "algorithm", "")
    least_channels = min(channels, outputs) // window.groups
    fitting = algorithms(ctx.builder.winograd, window, least_channels)
    allowed = [a for a in fitting if a not in WINOGRAD_FORMS or WINOGRAD_FORMS[a].taps or not computed]
    for algorithm in allowed:
        if algorithm == chosen:
            return algorithm
    pixels = product(shape[2:]).constant
    for algorithm in reversed(allowed):
        least = WINOGRAD.get(algorithm)
        if least and least_channels >= least.channels and (least.unknown if pixels is None else pixels >= least.pixels):
            return algorithm
    return "direct"
