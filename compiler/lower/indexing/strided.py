"""as_strided, unfold and their kin: places in the memory of a tensor, given by strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....runtime.errors import CompileError
from ...ir.index import ZERO, Index, as_index, product
from ...ir.proofs import nonnegative_by_cases
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Shape, Strided, Tensor
from .scatter import scatter_into


def _memory(ctx: Context, x: Tensor) -> Tensor:
    """x as torch has it in memory: only where that is dense, for else it would show what lies around a view."""
    node = ctx.operand_node(0)
    val = node.meta["val"] if node is not None else None
    if not isinstance(val, torch.Tensor):
        raise ctx.refuse("strides of something that is no tensor")
    whole = val.untyped_storage().nbytes() == val.numel() * val.element_size()
    if not whole or not val.is_contiguous() or val.storage_offset() != 0:
        raise ctx.refuse("strides of a tensor that is a view; make it contiguous")
    dense = ctx.builder.dense(x)
    assert dense.strided is not None
    return dense


def _check_inside(ctx: Context, x: Tensor, shape: Shape, strides: Sequence[Index], offset: Index) -> None:
    """The last element lies in the memory of x, for all sizes."""
    last = sum(((n - 1) * step for n, step in zip(shape, strides, strict=True)), offset)
    room = product(x.shape) - 1 - last
    if nonnegative_by_cases(room) or any(n == ZERO for n in shape):
        return
    raise CompileError(
        f"it reaches element {last} of a tensor that may have {product(x.shape)} elements", hint=_least(room)
    )


def _least(room: Index) -> str | None:
    """Which range of a size leaves no less than no room."""
    if len(sizes := room.sizes()) != 1:
        return None
    (size,) = sizes
    top = min(size.hi or size.lo, size.lo + 4096)
    found = next((n for n in range(size.lo, top + 1) if room.evaluate({size.name: n}) >= 0), None)
    return None if found is None or size.found else f"Let the range of {size.name} start at {found}."


@row("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(ctx: Context, x: Tensor, size: Any, stride: Sequence[Any], offset: Any = None) -> Tensor:
    memory = _memory(ctx, x).strided
    assert memory is not None
    strides = tuple(ctx.size(s) for s in stride)
    shape, start = ctx.result_shape(), ctx.size(offset)
    _check_inside(ctx, x, shape, strides, start)
    return Tensor(shape, x.dtype, Strided(memory.buffer, strides, start))


@row("aten.unfold.default")
def unfold(ctx: Context, x: Tensor, dim: int, size: Any, step: Any) -> Tensor:
    """Windows of `size` along a dimension, `step` apart, as a view; their elements come last."""
    shape, every = ctx.result_shape(), as_index(step) if isinstance(step, int) else ctx.size(step)
    if x.rank == 0:
        return Tensor(shape, x.dtype, make=lambda _: x.at([]))
    axis = ctx.axis(dim, x.rank)
    if x.strided is None:
        return Tensor(shape, x.dtype, make=lambda i: x.at([*i[:axis], i[axis] * every + i[-1], *i[axis + 1 : -1]]))
    strides, own = list(x.strided.strides), x.strided.strides[axis]
    strides[axis] = own * every
    return Tensor(shape, x.dtype, Strided(x.strided.buffer, (*strides, own), x.strided.offset))


@row("aten.as_strided_scatter.default")
def as_strided_scatter(
    ctx: Context, x: Tensor, source: Tensor, size: Any, stride: Sequence[Any], offset: Any = None
) -> Tensor:
    flat = ctx.builder.reshape(_memory(ctx, x), (product(x.shape),))
    strides = [ctx.size(s) for s in stride]
    _check_inside(ctx, x, source.shape, strides, ctx.size(offset))

    def place(i: list[Index]) -> list[Index]:
        at = ctx.size(offset)
        for index, step in zip(i, strides, strict=True):
            at = at + index * step
        return [at]

    out = scatter_into(ctx, flat, source.shape, place, source.at, "set", list(range(source.rank)))
    return ctx.builder.reshape(out, x.shape)
