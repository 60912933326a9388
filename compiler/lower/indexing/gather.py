"""Gathers and joins: embedding, index_select, gather, index.Tensor, cat, stack, pad, roll.

An index that is read from memory is an `Indirect` atom: code generation checks it against its extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.buffers import Buffer
from ...ir.expr import Expr, IndexValue, Load, cast
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    Indirect,
    as_index,
    maximum,
    minimum,
    of,
    product,
)
from ...ir.structured import Attention, Conv, Gemm
from ..core.builder import call, compare, number, size_value, where
from ..core.constants import LinePanels, Panels
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor, slice_dim, unsqueeze
from ..pointwise.create import filled
from .padding import bordered

#: parts of a concatenation that a GPU's kernel chooses between for each element
MAX_CHOSEN = 4


def indirect(value: Expr, extent: Index, wrap: bool) -> Index:
    """An index that is read from memory: a value in [0, extent), or in [-extent, extent) where it may `wrap`. Kernels
    check it when they run."""
    return of(Indirect(cast(value, "i64"), extent, wrap))


def looked_at(value: Expr, places: Sequence[Index]) -> Expr:
    """A value of these places, with the check of those that it does not depend on (expanded or constant operands)."""
    kept = {a for e in value.walk() if isinstance(e, (Load, IndexValue)) for a in e.index.atoms()}
    lost = [p for p in places if any(isinstance(a, Indirect) and a not in kept for a in p.atoms())]
    if not lost:
        return value
    inside = compare("ge", IndexValue(sum(lost, ZERO)), number(0, "i64"))
    return where(inside, value, value)


@row("aten.embedding.default")
def embedding(ctx: Context, weight: Tensor, ids: Tensor, *_: Any) -> Tensor:
    rows, columns = weight.shape
    ref = ctx.constant(0, "weight")
    layout = ctx.layout_of(ref) if ref is not None else None
    table = ctx.builder.constant(ref.target, ref.tensor, layout) if ref is not None and layout is not None else None

    def element(i: list[Index]) -> Expr:
        at = indirect(ids.at(i[:-1]), rows, wrap=False)
        if table is not None and isinstance(layout, Panels) and not layout.transposed:
            return Load(table, layout.index(at, i[-1], ctx.integer(columns)))
        if table is not None and isinstance(layout, LinePanels) and not layout.transposed:
            return _of_lines(table, layout, weight.dtype, at, i[-1])
        return looked_at(weight.at([at, i[-1]]), [at])

    return ctx.builder.map(ctx.result_shape(), weight.dtype, element)


def _of_lines(table: Buffer, layout: LinePanels, dtype: str, n: Index, k: Index) -> Expr:
    """Element k of row n of a table that a product of integers reads: a byte, or two halves where that is the table."""

    def byte(k: Index) -> Expr:
        return call("bit_and", cast(Load(table, layout.index(n, k)), "i32"), number(255, "i32"))

    def half(k: Index) -> Expr:
        low = compare("lt", IndexValue(k % as_index(8)), number(4, "i64"))
        mask = number(15, "i32")
        return where(low, call("bit_and", byte(k), mask), call("shift_right", byte(k), number(4, "i32")))

    if layout.bits == 8:
        return cast(call("sub" if dtype == "i8" else "bit_xor", byte(k), number(128, "i32")), dtype)
    if dtype == "u8":
        upper = call("shift_left", half(k * 2 + 1), number(4, "i32"))
        return cast(call("bit_or", half(k * 2), upper), "u8")
    return cast(call("sub", half(k), number(8, "i32")), dtype)


@row("aten.index_select.default")
def index_select(ctx: Context, x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.rank == 0:
        at = indirect(index.at([ZERO] * index.rank), ONE, wrap=False)
        return ctx.builder.map((), x.dtype, lambda _: looked_at(x.at([]), [at]))
    axis = ctx.axis(dim, x.rank)

    def element(i: list[Index]) -> Expr:
        at = indirect(index.at([i[axis]] if index.rank else []), x.shape[axis], wrap=False)
        return looked_at(x.at([*i[:axis], at, *i[axis + 1 :]]), [at])

    order = x.memory_order()
    return ctx.builder.map(ctx.result_shape(), x.dtype, element, order if order[-1] != axis else None)


@row("aten.gather.default")
def gather(ctx: Context, x: Tensor, dim: int, index: Tensor, **_: Any) -> Tensor:
    if index.shape and ZERO in index.shape:
        return filled(ctx.result_shape(), x.dtype, 0)
    if x.rank == 0 or index.rank == 0:
        x = unsqueeze(x, 0) if x.rank == 0 else x

        def first(i: list[Index]) -> Expr:
            at = indirect(index.at(i), x.shape[0], wrap=False)
            return looked_at(x.at([at]), [at])

        return ctx.builder.map(ctx.result_shape(), x.dtype, first)
    axis = ctx.axis(dim, x.rank)

    def element(i: list[Index]) -> Expr:
        at = indirect(index.at(i), x.shape[axis], wrap=False)
        return looked_at(x.at([*i[:axis], at, *i[axis + 1 :]]), [at])

    return ctx.builder.map(ctx.result_shape(), x.dtype, element)


@row("aten.index.Tensor")
def index_tensor(ctx: Context, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    from .data_sizes import mask_indices, selected

    first = indices[0]
    if len(indices) == 1 and first is not None and first.dtype == "bool" and 0 < first.rank == x.rank:
        return selected(ctx, x, first, ctx.value().shape[0])
    if any(t is not None and t.dtype in ("bool", "u8") for t in indices):
        indices = mask_indices(ctx, indices)
    return looked_up(ctx, x, indices)


def looked_up(ctx: Context, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[indices], each of them of places, whatever integers they are; those from the end are negative."""
    used = [d for d, t in enumerate(indices) if t is not None]
    tensors = [t for t in indices if t is not None]
    rank = max(t.rank for t in tensors)
    adjacent = used == list(range(used[0], used[-1] + 1))
    start = used[0] if adjacent else 0

    def element(i: list[Index]) -> Expr:
        picked = i[start : start + rank]
        rest = iter([*i[:start], *i[start + rank :]])
        at: list[Index] = []
        for d in range(x.rank):
            t = indices[d] if d < len(indices) else None
            at.append(next(rest) if t is None else indirect(t.at_broadcast(picked), x.shape[d], wrap=True))
        return looked_at(x.at(at), [at[d] for d in used])

    order = x.memory_order()
    kept = adjacent and rank == len(used) and order[-1] not in used  # pixels of an image in channels-last memory
    return ctx.builder.map(ctx.result_shape(), x.dtype, element, order if kept else None)


@row("mycc.read_blocks.default")
def read_blocks(ctx: Context, memory: Tensor, table: Tensor, count: int | Index) -> Tensor:
    """memory [blocks, heads, rows, size], table [texts, blocks of a text] -> [texts, heads, count, size]."""
    blocks, _, rows, _ = memory.shape

    def element(i: list[Index]) -> Expr:
        text, head, row, column = i
        block = indirect(table.at([text, row // rows]), blocks, wrap=False)
        return memory.at([block, head, row % rows, column])

    return ctx.builder.map(ctx.result_shape(), memory.dtype, element)


@row("aten.cat.default", "aten.concat.default")
def cat(ctx: Context, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    shape, dtype = ctx.result_shape(), ctx.result_dtype()
    parts = [t for t in tensors if not (t.rank == 1 and t.shape[0] == ZERO and len(shape) != 1)]
    axis = ctx.axis(dim, len(shape))
    parts = [t for t in parts if t.shape[axis] != ZERO] or parts[:1]
    first = max(parts, key=lambda t: t.strided is not None)
    if ctx.builder.family == "cuda" and _chosen_by_place(ctx, parts, axis):
        return ctx.builder.map(shape, dtype, lambda i: _part_at(parts, axis, i, dtype), first.memory_order())
    out = ctx.builder.temp(shape, dtype, first.memory_order())
    start = ZERO
    for t in parts:
        piece = slice_dim(out, axis, start, t.shape[axis])
        ctx.builder.map(piece.shape, dtype, _cast_reader(t, dtype), out=piece)
        start = start + t.shape[axis]
    return out


def _chosen_by_place(ctx: Context, parts: Sequence[Tensor], axis: int) -> bool:
    """Whether one kernel chooses the part of each element: few parts, none of which a matrix kernel stores in place."""
    if not 1 < len(parts) <= MAX_CHOSEN or not all((t.shape[axis] - 1).nonnegative() for t in parts):
        return False
    stored = {b for node in ctx.builder.nodes if isinstance(node, (Gemm, Conv, Attention)) for b in node.writes()}
    whole = [t.strided.buffer for t in parts if t.strided and t.strided.buffer.size == product(t.shape)]
    return not any(buffer in stored for buffer in whole)


def _part_at(parts: Sequence[Tensor], axis: int, i: list[Index], dtype: str) -> Expr:
    """The element of a concatenation at i: of each part the nearest one, and the choice between them."""
    end = sum((t.shape[axis] for t in parts), ZERO)
    value: Expr | None = None
    for t in reversed(parts):
        n = t.shape[axis]
        end = end - n
        place = maximum(minimum(i[axis] - end, n - 1), ZERO)
        own = cast(t.at([*i[:axis], place, *i[axis + 1 :]]), dtype)
        inside = compare("lt", IndexValue(i[axis]), size_value(end + n, "i64"))
        value = own if value is None else where(inside, own, value)
    assert value is not None
    return value


def _cast_reader(t: Tensor, dtype: str) -> Any:
    return lambda i: cast(t.at(i), dtype)


@row("aten.stack.default")
def stack(ctx: Context, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    axis = ctx.axis(dim, len(ctx.result_shape()))
    return cat(ctx, [unsqueeze(t, axis) for t in tensors], axis)


@row("aten.constant_pad_nd.default")
def constant_pad(ctx: Context, x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    return padded(ctx, x, [ctx.size(p) for p in pad], value)


@row("aten.pad.default")
def pad_op(ctx: Context, x: Tensor, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Tensor:
    if mode != "constant":
        return bordered(ctx, x, [ctx.size(p) for p in pad], mode)
    return padded(ctx, x, [ctx.size(p) for p in pad], 0 if value is None else value)


def padded(ctx: Context, x: Tensor, pad: Sequence[Index], value: Any) -> Tensor:
    """x with `pad` = (before, after) of the last dimension first; negative amounts cut."""
    shape = ctx.result_shape()
    before = {x.rank - 1 - j // 2: pad[j] for j in range(0, len(pad), 2)}
    after = {x.rank - 1 - j // 2: pad[j + 1] for j in range(0, len(pad), 2)}
    if any(n == ZERO for n in x.shape):  # nothing lies inside
        return ctx.builder.map(shape, x.dtype, lambda _: number(value, x.dtype))

    def element(i: list[Index]) -> Expr:
        conditions: list[Expr] = []
        at = list(i)
        for d, amount in before.items():
            own = i[d] - amount
            n = x.shape[d]
            at[d] = minimum(maximum(own, ZERO), n - 1)
            if any(s.found for s in n.sizes()):  # which may be 0: no place in front of the memory is read
                at[d] = maximum(at[d], ZERO)
            if amount != ZERO and not (amount.constant is not None and amount.constant < 0):
                conditions.append(compare("ge", IndexValue(own), IndexValue(ZERO)))
            if after[d] != ZERO and not ((after[d].constant or 0) < 0):
                conditions.append(compare("lt", IndexValue(own), IndexValue(n)))
        inside = x.at(at)
        if not conditions:
            return inside
        truth = conditions[0]
        for c in conditions[1:]:
            truth = compare("logical_and", truth, c)
        return where(truth, inside, number(value, x.dtype))

    out = ctx.builder.map(shape, x.dtype, element, x.memory_order())
    if value == 0:
        ctx.builder.remember_padding(out, x, [before.get(d, ZERO) for d in range(x.rank)])
    return out


@row("aten.roll.default")
def roll(ctx: Context, x: Tensor, shifts: Sequence[int | Index], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        flat = ctx.builder.reshape(x, (as_index(1) * _count(x),))
        rolled = _rolled(ctx, flat, [shifts[0]], [0])
        return ctx.builder.reshape(rolled, x.shape)
    return _rolled(ctx, x, shifts, [ctx.axis(d, x.rank) for d in dims])


def _count(x: Tensor) -> Index:
    from ...ir.index import product

    return product(x.shape)


def _rolled(ctx: Context, x: Tensor, shifts: Sequence[int | Index], axes: Sequence[int]) -> Tensor:
    if any(x.shape[d] == ZERO for d in axes):
        return x

    def element(i: list[Index]) -> Expr:
        at = list(i)
        for shift, d in zip(shifts, axes, strict=True):
            n, by = x.shape[d], as_index(shift)
            forward = by.constant is None or by.constant > 0
            at[d] = (i[d] + (n - by % n if forward else as_index(0) - by)) % n
        return x.at(at)

    return ctx.builder.map(x.shape, x.dtype, element)


@row("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def upsample_nearest_vec(ctx: Context, x: Tensor, _: Any = None, scales: Any = None) -> Tensor:
    return _nearest(ctx, x, scales or (), centres=False)


@row("aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default")
def upsample_nearest(ctx: Context, x: Tensor, _: Any, *scales: Any) -> Tensor:
    return _nearest(ctx, x, scales, centres=False)


@row("aten._upsample_nearest_exact1d.vec", "aten._upsample_nearest_exact2d.vec", "aten._upsample_nearest_exact3d.vec")
def upsample_nearest_exact_vec(ctx: Context, x: Tensor, _: Any = None, scales: Any = None) -> Tensor:
    return _nearest(ctx, x, scales or (), centres=True)


@row(*(f"aten._upsample_nearest_exact{n}d.default" for n in (1, 2, 3)))
def upsample_nearest_exact(ctx: Context, x: Tensor, _: Any, *scales: Any) -> Tensor:
    return _nearest(ctx, x, scales, centres=True)


def _in_whole_numbers(size: Index, out: Index, scale: float | None, centres: bool) -> bool:
    """Whether the float32 that torch works out is never a rounding error below a whole number that it should be."""
    if size.constant is not None and out.constant is not None:
        places = np.arange(out.constant)
        step = np.float32(1.0 / scale) if scale is not None else np.float32(size.constant) / np.float32(out.constant)
        shift = np.float32(0.5 if centres else 0)
        rounded = np.minimum(np.floor((places.astype(np.float32) + shift) * step), size.constant - 1)
        whole = (2 * places + centres) * size.constant // (2 * out.constant)
        return bool((rounded == whole).all())
    if scale is None or scale != int(scale) or size * int(scale) != out:
        return False
    return float(np.float32(1.0 / scale)) * int(scale) >= 1  # rounded up or not at all


def _nearest(ctx: Context, x: Tensor, scales: Sequence[float | None], centres: bool) -> Tensor:
    """Each output reads floor(place / scale) in float32 as torch does, or in whole numbers where that is the same.
    centres: the place is that of an element's middle, o + 1/2."""
    shape = ctx.result_shape()

    def source(d: int, o: Index) -> Index:
        size, out, scale = x.shape[d], shape[d], scales[d - 2] if scales else None
        if _in_whole_numbers(size, out, scale, centres):
            return ((o * 2 + 1) * size) // (out * 2) if centres else (o * size) // out
        place = cast(IndexValue(o), "f32")
        if centres:
            place = call("add", place, number(0.5, "f32"))
        ratio = call("div", cast(IndexValue(size), "f32"), cast(IndexValue(out), "f32"))
        step = ratio if scale is None else number(1.0 / scale, "f32")
        floor = cast(call("floor", call("mul", place, step)), "i64")
        return indirect(call("minimum", floor, size_value(size - 1, "i64")), size, wrap=False)

    def element(i: list[Index]) -> Expr:
        return x.at([*i[:2], *(source(d, i[d]) for d in range(2, x.rank))])

    return ctx.builder.map(shape, x.dtype, element, x.memory_order())
