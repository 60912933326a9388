"""Operators whose results have as many rows as the values of a tensor say: nonzero, masks, unique, repeats, bincount.

places, count = nonzero_indices(mask)          places has room for all, count is read by the host
u0 = count                                 the size that the run finds
out[r:u0] = x[places[r]]                   from here on u0 is a size like any other
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    Indirect,
    maximum,
    minimum,
    of,
    product,
)
from ..core.builder import call, compare, number, size_value, where
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import (
    Shape,
    Tensor,
    dense_strides,
    expand,
    permute,
    reshape,
    split_index,
    unsqueeze,
)
from ..pointwise.create import filled
from ..reduce.reduce import reduction
from ..reduce.scan import Running, scan
from .scatter import scatter_into
from .sort import sorted_rows


def nonzero_indices(ctx: Context, mask: Tensor, rows: Any) -> tuple[Tensor, Index]:
    """Flat places of the true elements of a mask, and how many there are: the size `rows` of the node's value."""
    flat = ctx.builder.reshape(mask, (product(mask.shape),))
    n = flat.shape[0]
    outputs: list[tuple[Shape, str]] = [((n,), "i64"), ((), "i64")]
    places, count = call_routine(ctx.builder, "nonzero_indices", (), [(flat, 1)], outputs, [n])
    return places, ctx.define(rows, count)


def _truth(ctx: Context, x: Tensor) -> Tensor:
    """x != 0"""
    if x.dtype == "bool":
        return x
    compute = DTYPES[x.dtype].compute
    return ctx.builder.map(x.shape, "bool", lambda i: compare("ne", cast(x.at(i), compute), number(0, compute)))


def _at(places: Tensor, row: Index) -> Expr:
    """Element `row` of places, whose bound the size symbol may not know: there are never more rows than places."""
    return places.at([minimum(row, places.shape[0] - 1)])


def _place(places: Tensor, row: Index, extent: Index) -> Index:
    return of(Indirect(_at(places, row), extent))


def _coordinates(ctx: Context, x: Tensor, rows: Any) -> tuple[Tensor, Index]:
    """Places of the elements that are not zero, and their number."""
    line = reshape(x, (ONE,)) if x.rank == 0 else x
    assert line is not None
    return nonzero_indices(ctx, _truth(ctx, line), rows)


def _coordinate(places: Tensor, row: Index, shape: Shape, d: int) -> Expr:
    """Coordinate d of the element at places[row] of a tensor."""
    value = _at(places, row)
    stride = dense_strides(shape)[d]
    if stride != ONE:
        value = call("floor_div", value, size_value(stride, "i64"))
    return value if d == 0 else call("remainder", value, size_value(shape[d], "i64"))


@row("aten.nonzero.default", "aten.argwhere.default")
def nonzero(ctx: Context, x: Tensor) -> Tensor:
    rows, columns = ctx.value().shape
    places, count = _coordinates(ctx, x, rows)
    if columns == 0:
        return filled((count, ZERO), "i64", 0)
    parts = [ctx.builder.map((count,), "i64", _reader(places, x.shape, d)) for d in range(x.rank)]
    if len(parts) == 1:
        return unsqueeze(parts[0], 1)
    from .gather import cat

    return cat(ctx, [unsqueeze(p, 1) for p in parts], 1)


def _reader(places: Tensor, shape: Shape, d: int) -> Any:
    return lambda i: _coordinate(places, i[0], shape, d)


@row("aten.nonzero_numpy.default", "aten.where.default")
def nonzero_numpy(ctx: Context, x: Tensor) -> tuple[Tensor, ...]:
    shape = x.shape if x.rank else (ONE,)
    places, count = _coordinates(ctx, x, ctx.value(0).shape[0])
    return tuple(ctx.builder.map((count,), "i64", _reader(places, shape, d)) for d in range(len(shape)))


@row("aten.masked_select.default")
def masked_select(ctx: Context, x: Tensor, mask: Tensor) -> Tensor:
    shape = _broadcast(x.shape, mask.shape)
    x, mask = expand(x, shape), expand(mask, shape)
    if not shape:
        shape, x, mask = (ONE,), unsqueeze(x, 0), unsqueeze(mask, 0)
    return selected(ctx, x, mask, ctx.value().shape[0])


def selected(ctx: Context, x: Tensor, mask: Tensor, rows: Any) -> Tensor:
    """The elements of x where a mask of its shape is true: `rows` of them."""
    shape, builder = x.shape, ctx.builder
    extent = product(shape)
    if builder.family != "cuda":
        flat, chosen = builder.dense(builder.reshape(x, (extent,))), builder.dense(builder.reshape(mask, (extent,)))
        (found,) = call_routine(builder, "true_count", (), [(chosen, 1)], [((), "i64")], [extent])
        count = ctx.define(rows, found)
        outputs: list[tuple[Shape, str]] = [((count,), x.dtype)]
        return call_routine(builder, "true_elements", (), [(flat, 1), (chosen, 1)], outputs, [extent, count])[0]
    places, count = nonzero_indices(ctx, mask, rows)
    return ctx.builder.map((count,), x.dtype, lambda i: x.at(split_index(_place(places, i[0], extent), shape)))


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    a, b = (ONE,) * (rank - len(a)) + a, (ONE,) * (rank - len(b)) + b
    return tuple(m if n == ONE else n for n, m in zip(a, b, strict=True))


def mask_indices(ctx: Context, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Masks among the indices as the coordinates of their true elements. One mask; its size is the node's own."""
    masks = [t for t in indices if t is not None and t.dtype in ("bool", "u8")]
    if len(masks) > 1:
        raise ctx.refuse("several masks in one index: use one mask, m1 & m2 or m1.nonzero()")
    result: list[Tensor | None] = []
    for t in indices:
        if t is None or t.dtype not in ("bool", "u8"):
            result.append(t)
            continue
        if t.rank == 0:
            raise ctx.refuse("a mask without dimensions as an index: use torch.where")
        places, count = _coordinates(ctx, t, _mask_rows(ctx, indices))
        result += [ctx.builder.map((count,), "i64", _reader(places, t.shape, d)) for d in range(t.rank)]
    return result


def _mask_rows(ctx: Context, indices: Sequence[Tensor | None]) -> Any:
    """The size of the result that the mask's count is."""
    used = [d for d, t in enumerate(indices) if t is not None]
    adjacent = used == list(range(used[0], used[-1] + 1))
    others = [t.rank for t in indices if t is not None and t.dtype not in ("bool", "u8")]
    start = used[0] if adjacent else 0
    return ctx.value().shape[start + max([1, *others]) - 1]


# equal neighbours ----------------------------------------------------------------------------------------------------
def _runs(ctx: Context, starts: Tensor, rows: Any) -> tuple[Tensor, Index, Tensor]:
    """Where runs start (a mask of n), how many there are, and the number of the run of each element."""
    places, count = nonzero_indices(ctx, starts, rows)
    start = Running("i64", -1, lambda accs, e, _: call("add", accs[0], cast(e, "i64")))
    (number_of,) = scan(ctx, starts, 0, [start], ["i64"])
    return places, count, number_of


def _lengths(ctx: Context, places: Tensor, count: Index, n: Index) -> Tensor:
    """How long each run is."""

    def length(i: list[Index]) -> Expr:
        last = compare("eq", IndexValue(i[0]), size_value(count - 1, "i64"))
        end = where(last, size_value(n, "i64"), places.at([minimum(i[0] + 1, n - 1)]))
        return call("sub", end, _at(places, i[0]))

    return ctx.builder.map((count,), "i64", length)


def _starts(ctx: Context, n: Index, pairs: Tensor) -> Tensor:
    """True where element i differs from the one before; pairs[i] says so for i >= 1."""

    def starts(i: list[Index]) -> Expr:
        return compare("logical_or", compare("eq", IndexValue(i[0]), number(0, "i64")), pairs.at(i))

    return ctx.builder.map((n,), "bool", starts)


def _neighbours(ctx: Context, rows: Tensor) -> Tensor:
    """For each row of [n] or [n, m]: whether it differs from the one before; the first from itself."""
    n, compute = rows.shape[0], DTYPES[rows.dtype].compute

    def differs(i: list[Index]) -> Expr:
        own, other = rows.at(i), rows.at([maximum(i[0] - 1, ZERO), *i[1:]])
        return compare("ne", cast(own, compute), cast(other, compute))

    if rows.rank == 1:
        return ctx.builder.map((n,), "bool", differs)
    marks = ctx.builder.map(rows.shape, "bool", differs)
    return reduction(ctx, marks, [1], False, "any", lambda e: e, dtype="bool")


def _empty(dtype: str = "i64") -> Tensor:
    return filled((ZERO,), dtype, 0)


def _unique(
    ctx: Context, lines: Tensor, order: Tensor | None, inverse: bool, counts: bool, rows: Any, shape: Shape
) -> tuple[Tensor, Index, Tensor, Tensor]:
    """Places of the first line of every run of equal ones, their number, the inverse (of `shape`) and the counts.

    lines: [n] or [n, m], equal ones together. order: where each stood before.
    """
    n = lines.shape[0]
    starts = _starts(ctx, n, _neighbours(ctx, lines))
    places, count, number_of = _runs(ctx, starts, rows)
    back, lengths = _empty(), _empty()
    if inverse:
        back = number_of
        if order is not None:
            place = lambda i: [of(Indirect(order.at(i), n))]  # noqa: E731
            back = scatter_into(ctx, filled((n,), "i64", 0), (n,), place, number_of.at, "set", [])
        back = ctx.builder.reshape(back, shape)
    if counts:
        lengths = _lengths(ctx, places, count, n)
    return places, count, back, lengths


def _picked(ctx: Context, lines: Tensor, places: Tensor, count: Index) -> Tensor:
    n = lines.shape[0]
    return ctx.builder.map(
        (count, *lines.shape[1:]), lines.dtype, lambda i: lines.at([_place(places, i[0], n), *i[1:]])
    )


@row("aten._unique2.default")
def unique2(
    ctx: Context, x: Tensor, ordered: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    flat = ctx.builder.reshape(x, (product(x.shape),))
    values, order = sorted_rows(ctx, flat, 0, False)
    rows = ctx.value(0).shape[0]
    places, count, back, lengths = _unique(ctx, values, order, return_inverse, return_counts, rows, x.shape)
    return _picked(ctx, values, places, count), back, lengths


@row("aten.unique_consecutive.default")
def unique_consecutive(
    ctx: Context, x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]:
    if dim is not None:
        return _unique_lines(ctx, x, dim, False, return_inverse, return_counts)
    flat = ctx.builder.dense(ctx.builder.reshape(x, (product(x.shape),)))
    rows = ctx.value(0).shape[0]
    places, count, back, lengths = _unique(ctx, flat, None, return_inverse, return_counts, rows, x.shape)
    return _picked(ctx, flat, places, count), back, lengths


@row("aten.unique_dim.default")
def unique_dim(
    ctx: Context, x: Tensor, dim: int, ordered: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _unique_lines(ctx, x, dim, True, return_inverse, return_counts)


@row("aten.unique_dim_consecutive.default")
def unique_dim_consecutive(
    ctx: Context, x: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _unique_lines(ctx, x, dim, False, return_inverse, return_counts)


def _unique_lines(ctx: Context, x: Tensor, dim: int, ordered: bool, inverse: bool, counts: bool) -> tuple[Tensor, ...]:
    """Unique slices along a dimension: its slices become rows, in lexicographic order when `ordered`."""
    axis = ctx.axis(dim, x.rank)
    if ctx.value(0).dim() != x.rank:  # unique_consecutive with dim=-1, as of torch 2.13
        raise ctx.refuse(f"torch.export gives this operator a wrong shape for dim={dim}: write dim={axis}")
    first = [axis, *(d for d in range(x.rank) if d != axis)]
    moved = permute(x, first)
    n, rest = moved.shape[0], moved.shape[1:]
    lines = ctx.builder.dense(ctx.builder.reshape(moved, (n, product(rest))))
    order = None
    if ordered:
        sizes = [n, lines.shape[1]]
        (order,) = call_routine(ctx.builder, "row_order", (), [(lines, 2)], [((n,), "i64")], sizes)
        source, found = lines, order
        lines = ctx.builder.map(lines.shape, lines.dtype, lambda i: source.at([_place(found, i[0], n), *i[1:]]))
    rows = ctx.value(0).shape[axis]
    places, count, back, lengths = _unique(ctx, lines, order, inverse, counts, rows, (n,))
    picked = ctx.builder.reshape(_picked(ctx, lines, places, count), (count, *rest))
    return permute(picked, [first.index(d) for d in range(x.rank)]), back, lengths


# counts --------------------------------------------------------------------------------------------------------------
@row("aten.bincount.default")
def bincount(ctx: Context, x: Tensor, weights: Tensor | None = None, minlength: Any = 0) -> Tensor:
    n = x.shape[0]
    builder = ctx.builder
    top = reduction(ctx, x, [0], False, "max", lambda e: cast(e, "i64"), dtype="i64") if n != ZERO else None
    least = size_value(ctx.size(minlength), "i64")

    def length(i: list[Index]) -> Expr:
        if top is None:
            return least
        found = where(compare("eq", size_value(n, "i64"), number(0, "i64")), number(-1, "i64"), top.at(i))
        return call("maximum", call("add", found, number(1, "i64")), least)

    count = ctx.define(ctx.value().shape[0], builder.map((), "i64", length))
    dtype = ctx.result_dtype()

    def one(i: list[Index]) -> Expr:
        return number(1, dtype) if weights is None else cast(weights.at(i), dtype)

    return scatter_into(
        ctx, filled((count,), dtype, 0), (n,), lambda i: [of(Indirect(cast(x.at(i), "i64"), count))], one, "add", [0]
    )


# repeats -------------------------------------------------------------------------------------------------------------
def _repeated(ctx: Context, repeats: Tensor, rows: Any) -> tuple[Tensor, Index]:
    """Places 0..n-1, each as often as `repeats` says, and their number."""
    builder = ctx.builder
    n = repeats.shape[0]
    if builder.family == "cuda":
        return _repeated_by_ends(ctx, repeats, rows)
    wide = builder.dense(builder.map(repeats.shape, "i64", lambda i: cast(repeats.at(i), "i64")))
    (total,) = call_routine(builder, "repeats_total", (), [(wide, 1)], [((), "i64")], [n])
    count = ctx.define(rows, total)
    (places,) = call_routine(builder, "repeated_places", (), [(wide, 1)], [((count,), "i64")], [n, count])
    return places, count


def _repeated_by_ends(ctx: Context, repeats: Tensor, rows: Any) -> tuple[Tensor, Index]:
    """The same by where the repeats of each place end; -1 is the number of rows where a repeat is negative."""
    builder, n = ctx.builder, repeats.shape[0]
    running = Running("i64", 0, lambda accs, e, _: call("add", accs[0], cast(e, "i64")))
    (ends,) = scan(ctx, repeats, 0, [running], ["i64"])
    empty = compare("eq", size_value(n, "i64"), number(0, "i64"))
    if n == ZERO:
        total = builder.map((), "i64", lambda _: number(0, "i64"))
    else:
        least = reduction(ctx, repeats, [0], False, "min", lambda e: cast(e, "i64"), dtype="i64")
        last = lambda: ends.at([maximum(n - 1, ZERO)])  # noqa: E731

        # a sum of more than 63 bits wraps
        sum_f64 = reduction(ctx, repeats, [0], False, "sum", lambda e: cast(e, "f64"), dtype="f64")

        def rows_in_all(i: list[Index]) -> Expr:
            counted = where(compare("lt", sum_f64.at(i), number(9.2e18, "f64")), last(), number(2**63 - 1, "i64"))
            return where(compare("lt", least.at(i), number(0, "i64")), number(-1, "i64"), counted)

        total = builder.map((), "i64", lambda i: where(empty, number(0, "i64"), rows_in_all(i)))
    count = ctx.define(rows, total)
    (places,) = call_routine(builder, "ends_before", (), [(ends, 1)], [((count,), "i64")], [n, count])
    return places, count


@row("aten.repeat_interleave.Tensor")
def repeat_interleave(ctx: Context, repeats: Tensor, *, output_size: Any = None) -> Tensor:
    return _repeated(ctx, repeats, ctx.value().shape[0])[0]


@row("aten.repeat_interleave.self_Tensor")
def repeat_interleave_of(
    ctx: Context, x: Tensor, repeats: Tensor, dim: int | None = None, *, output_size: Any = None
) -> Tensor:
    if dim is None:
        x, dim = ctx.builder.reshape(x, (product(x.shape),)), 0
    axis = ctx.axis(dim, x.rank)
    n = x.shape[axis]
    if repeats.rank == 0 or repeats.shape[0] == ONE:
        repeats = expand(repeats if repeats.rank else unsqueeze(repeats, 0), (n,))
    places, count = _repeated(ctx, repeats, ctx.value().shape[axis])
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return ctx.builder.map(shape, x.dtype, lambda i: x.at([*i[:axis], _place(places, i[axis], n), *i[axis + 1 :]]))


# numbers -------------------------------------------------------------------------------------------------------------
@row("aten.item.default", "aten._local_scalar_dense.default")
def item(ctx: Context, x: Tensor) -> Tensor | Index:
    """A number of a tensor: a size where the model says that it is one, else a tensor of one element."""
    line = reshape(x, ()) or ctx.builder.reshape(x, ())
    value = ctx.node.meta["val"]
    if isinstance(value, torch.SymInt) and ctx.builder.finds(value):
        return ctx.define(value, line)
    return line
