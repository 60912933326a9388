"""Views: a change of strides or of index, never a copy (reshape copies only where strides do not allow a view)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.index import ONE, Index, as_index, product
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import (
    Shape,
    Tensor,
    channels_last_order,
    expand,
    flip,
    permute,
    select,
    slice_dim,
    squeeze,
    unsqueeze,
)
from .gather import looked_up


@row(
    "aten.alias.default",
    "aten.detach.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "mycc.recomputed.default",
)
def same(ctx: Context, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x


@row(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.view_copy.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
)
def reshape(ctx: Context, x: Tensor, *_: Any) -> Tensor:
    """A view, or a copy: of an image in channels-last memory (channels that are shuffled) again in such memory."""
    return ctx.builder.reshape(x, ctx.result_shape(), channels_last_order(x, ctx.result_shape()))


@row("aten.permute.default")
def permute_op(ctx: Context, x: Tensor, dims: Sequence[int]) -> Tensor:
    return permute(x, [ctx.axis(d, x.rank) for d in dims])


@row("aten.transpose.int")
def transpose(ctx: Context, x: Tensor, a: int, b: int) -> Tensor:
    if x.rank == 0:
        return x
    order = list(range(x.rank))
    a, b = ctx.axis(a, x.rank), ctx.axis(b, x.rank)
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


@row("aten.t.default")
def t(ctx: Context, x: Tensor) -> Tensor:
    return permute(x, list(reversed(range(x.rank))))


@row("aten.expand.default", "aten.expand_copy.default", "aten.expand_as.default", "aten.broadcast_to.default")
def expand_op(ctx: Context, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return expand(x, ctx.result_shape())


@row("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze_op(ctx: Context, x: Tensor, dims: Any = None) -> Tensor:
    if dims is None:
        axes = list(range(x.rank))
    else:
        axes = [ctx.axis(d, x.rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]
    for d in sorted(axes, reverse=True):
        if x.rank and x.shape[d] == ONE:
            x = squeeze(x, d)
    return x


@row("aten.unsqueeze.default")
def unsqueeze_op(ctx: Context, x: Tensor, dim: int) -> Tensor:
    return unsqueeze(x, ctx.axis(dim, x.rank + 1))


@row("aten.slice.Tensor")
def slice_op(ctx: Context, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    axis = ctx.axis(dim, x.rank)
    first = ctx.slice_bound(start, x.shape[axis], as_index(0))
    return slice_dim(x, axis, first, ctx.result_shape()[axis], step)


@row("aten.narrow.default")
def narrow(ctx: Context, x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    axis = ctx.axis(dim, x.rank)
    return slice_dim(x, axis, ctx.slice_bound(start, x.shape[axis], as_index(0)), ctx.size(length))


@row("aten.select.int")
def select_op(ctx: Context, x: Tensor, dim: int, index: Any) -> Tensor:
    axis = ctx.axis(dim, x.rank)
    if isinstance(index, Tensor):  # a number that the run finds: x[i[0]]
        return looked_up(ctx, x, [*[None] * axis, index])
    return select(x, axis, ctx.place(index, x.shape[axis]))


def _pieces(x: Tensor, axis: int, lengths: Sequence[Index]) -> tuple[Tensor, ...]:
    start, out = as_index(0), []
    for length in lengths:
        out.append(slice_dim(x, axis, start, length))
        start = start + length
    return tuple(out)


@row(
    "aten.split.Tensor",
    "aten.split.sizes",
    "aten.split_with_sizes.default",
    "aten.chunk.default",
    "aten.tensor_split.sections",
    "aten.tensor_split.indices",
)
def split(ctx: Context, x: Tensor, _: Any, dim: int = 0) -> tuple[Tensor, ...]:
    axis = ctx.axis(dim, x.rank)
    return _pieces(x, axis, [ctx.result_shape(i)[axis] for i in range(len(ctx.node.meta["val"]))])


@row("aten.unbind.int")
def unbind(ctx: Context, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    axis = ctx.axis(dim, x.rank)
    return tuple(select(x, axis, as_index(i)) for i in range(ctx.integer(x.shape[axis])))


@row("aten.flip.default")
def flip_op(ctx: Context, x: Tensor, dims: Sequence[int]) -> Tensor:
    return flip(x, [ctx.axis(d, x.rank) for d in dims])


@row("aten.repeat.default")
def repeat(ctx: Context, x: Tensor, *_: Any) -> Tensor:
    shape = ctx.result_shape()
    for _i in range(len(shape) - x.rank):
        x = unsqueeze(x, 0)
    if all(own in (n, ONE) for own, n in zip(x.shape, shape, strict=True)):
        return expand(x, shape)
    own = x.shape
    return Tensor(shape, x.dtype, make=lambda i: x.at([a % n for a, n in zip(i, own, strict=True)]))


@row("aten.pixel_shuffle.default")
def pixel_shuffle(ctx: Context, x: Tensor, factor: int) -> Tensor:
    *lead, c, h, w = x.shape
    out = c // as_index(factor * factor)
    n = len(lead)
    split_shape: Shape = (*lead, out, as_index(factor), as_index(factor), h, w)
    y = ctx.builder.reshape(x, split_shape)
    y = permute(y, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return ctx.builder.reshape(y, ctx.result_shape())


def flat_rows(ctx: Context, x: Tensor) -> Tensor:
    """[..., k] as [rows, k]."""
    return ctx.builder.reshape(x, (product(x.shape[:-1]), x.shape[-1]))
