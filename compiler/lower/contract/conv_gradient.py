"""The gradient of a convolution's weight on a GPU: a convolution whose window are the pixels of a sample."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.buffers import Operand
from ...ir.expr import Acc, cast
from ...ir.index import of
from ...ir.nodes import Store
from ...ir.structured import Conv, Window
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor, channels_last, permute, squeeze, unsqueeze


@row("mycc.conv_weight_gradient.default")
def conv_weight_gradient(
    ctx: Context,
    small: Tensor,
    large: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """w[a, b, t] = sum over n and places p of small[n, a, p] * large[n, b, p * stride + t * dilation - padding]

    The convolution of large with its samples as channels, by steps of `dilation`, with a window of all places that are
    `stride` apart. It is written [a, t, b], so that neighbours lie side by side.
    """
    if not ctx.takes_product(small.dtype):
        raise ctx.refuse(f"convolutions of {small.dtype} are not supported on this target")
    builder, dtype = ctx.builder, small.dtype
    one = small.rank == 3
    if one:
        small, large = unsqueeze(small, 2), unsqueeze(large, 2)
        kernel, stride, padding, dilation = (
            [n, *v] for n, v in ((1, kernel), (1, stride), (0, padding), (1, dilation))
        )
    order = channels_last(small.rank)
    small, large = builder.realize(small, order), builder.realize(large, order)
    assert small.strided is not None
    assert large.strided is not None
    places = tuple(ctx.integer(n) for n in small.shape[2:])
    window = Window(places, tuple(dilation), tuple(padding), tuple(stride), 1)
    shape = (large.shape[1], *builder.sizes.shape(kernel), small.shape[1])
    out = builder.temp((small.shape[1], *shape[1:-1], large.shape[1]), dtype)
    assert out.strided is not None
    loops = [builder.var(n, name) for n, name in zip(shape, ("n", *"dhw"[-len(kernel) :], "c"), strict=True)]
    b, *taps, a = (of(v) for v in loops)
    acc = Acc(builder.fresh("acc"), "f32")
    store = Store(out.strided.buffer, out.place((a, *taps, b)), cast(acc, dtype))
    n, channel, *space = large.strided.strides
    x = Operand(large.strided.buffer, large.strided.offset, (channel, *space, n))
    in_shape = (large.shape[1], *large.shape[2:], large.shape[0])
    builder.add(
        Conv(
            tuple(loops), (store,), builder.origin, x, small.strided.buffer, small.strided.offset, in_shape, window,
            acc, "pixels",
        )
    )  # fmt: skip
    found = permute(out, (0, out.rank - 1, *range(1, out.rank - 1)))
    return squeeze(found, 2) if one else found
