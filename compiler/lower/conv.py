"""Convolutions: channels-last implicit GEMM; 1-d ones are 2-d ones of height 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.dtypes import from_torch
from ..ir.expr import Acc, Expr, cast
from ..ir.index import ONE, ZERO, Index, of
from ..ir.nodes import Conv, Operand, Store, Window
from .builder import call
from .constants import ConvPanels, Layout, Taps, TapsLast
from .context import ConstantRef, Context, ints, pair
from .registry import row
from .tensor import Tensor, squeeze, unsqueeze

CHANNELS_LAST = (0, 2, 3, 1)  # memory order of an [n, c, h, w] tensor


@row("aten.conv2d.default", "aten.conv2d.padding")
def conv2d(
    ctx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if x.rank == 3:
        return squeeze(conv2d(ctx, unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0)
    kernel = (ctx.integer(weight.shape[2]), ctx.integer(weight.shape[3]))
    dilations = pair(dilation)
    window = Window(kernel, pair(stride), _padding(ctx, padding, kernel, dilations), dilations, groups)
    return convolve(ctx, x, _weight(ctx), bias, window)


@row("aten.conv1d.default", "aten.conv1d.padding")
def conv1d(
    ctx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if x.rank == 2:
        return squeeze(conv1d(ctx, unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0)
    kernel = (1, ctx.integer(weight.shape[2]))
    dilations = (1, ints(dilation, 1)[0])
    pad = _padding(ctx, padding if isinstance(padding, str) else (0, *ints(padding, 1)), kernel, dilations)
    window = Window(kernel, (1, ints(stride, 1)[0]), pad, dilations, groups)
    ref = _weight(ctx)
    flat = ConstantRef(ref.target, ref.tensor.unsqueeze(2))
    return squeeze(convolve(ctx, unsqueeze(x, 2), flat, bias, window), 2)


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
    if transposed or x.rank not in (3, 4):
        raise ctx.refuse("transposed and 3-d convolutions are not supported on this target")
    function = conv1d if x.rank == 3 else conv2d
    return function(ctx, x, weight, bias, stride, padding, dilation, groups)


def _weight(ctx: Context) -> ConstantRef:
    ref = ctx.constant(1, "weight")
    if ref is None or not ctx.takes_product(from_torch(ref.tensor.dtype)):
        raise ctx.refuse("the weight of a convolution must be a float32 parameter of the model")
    return ref


def _padding(ctx: Context, padding: Any, kernel: tuple[int, int], dilation: tuple[int, ...]) -> tuple[int, int]:
    if isinstance(padding, str):
        if padding == "valid":
            return (0, 0)
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        if any(t % 2 for t in total):
            raise ctx.refuse('padding="same" with an even window pads one side more; pad the input yourself')
        return (total[0] // 2, total[1] // 2)
    return pair(padding)


def convolve(ctx: Context, x: Tensor, ref: ConstantRef, bias: Tensor | None, window: Window) -> Tensor:
    """x [n, c, h, w] with the packed weight; the result lies in memory channels-last."""
    if not ctx.takes_product(x.dtype):
        raise ctx.refuse(f"convolutions of {x.dtype} are not supported on this target")
    builder = ctx.builder
    x = builder.realize(x, CHANNELS_LAST)
    assert x.strided is not None
    n, c, h, w = x.shape
    out_c = ref.tensor.shape[0]
    depthwise = window.groups > 1 and window.groups == out_c and ref.tensor.shape[1] == 1 and c == window.groups
    panels: Layout = TapsLast() if builder.family == "cuda" else ConvPanels(window.groups)
    layout: Layout = Taps() if depthwise else panels
    packed = builder.constant(ref.target, ref.tensor, layout)
    size = [_out_size(e, window, d) for d, e in enumerate((h, w))]
    shape = (n, Index({(): out_c}), size[0], size[1])
    out = builder.temp(shape, x.dtype, CHANNELS_LAST)
    assert out.strided is not None
    dims = tuple(builder.var(shape[d], name) for d, name in zip(CHANNELS_LAST, ("n", "h", "w", "c"), strict=True))
    nhwc = [of(d) for d in dims]
    acc = Acc(builder.fresh("acc"), "f32")
    value: Expr = acc if bias is None else call("add", acc, cast(bias.at([nhwc[3]]), "f32"))
    flat = out.strided.offset
    for i, d in zip(nhwc, CHANNELS_LAST, strict=True):
        flat = flat + i * out.strided.strides[d]
    strides = tuple(x.strided.strides[d] for d in (0, 2, 3))
    operand = Operand(x.strided.buffer, x.strided.offset, strides)
    store = Store(out.strided.buffer, flat, cast(value, x.dtype))
    node = Conv(dims, (store,), builder.origin, operand, packed, ZERO, (n, h, w, c), window, acc)
    builder.add(node)
    return out


def _out_size(size: Index, window: Window, axis: int) -> Index:
    k, s, p, d = window.kernel[axis], window.stride[axis], window.pad[axis], window.dilation[axis]
    return (size + 2 * p - d * (k - 1) - 1) // Index({(): s}) + ONE
