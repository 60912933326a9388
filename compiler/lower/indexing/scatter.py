"""Scatters: a copy of a tensor with elements written, or combined, at places read from memory; in torch's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load, cast
from ...ir.index import ONE, ZERO, Index, of
from ...ir.nodes import Scatter, Store
from ...ir.proofs import nonnegative_by_cases
from ..core.builder import call, compare, number, where
from ..core.context import Context
from ..core.in_place import target_of
from ..core.registry import row
from ..core.tensor import Shape, Tensor, reshape, split_index
from ..pointwise.create import filled
from ..reduce.scan import worst
from .gather import indirect

Combine = Callable[[Expr, Expr], Expr]  # (the element so far, the new value) in the compute type
Place = Callable[[list[Index]], list[Index]]  # indices of an update -> indices of the element


def _add(old: Expr, new: Expr) -> Expr:
    return compare("logical_or", old, new) if new.dtype == "bool" else call("add", old, new)


def _mul(old: Expr, new: Expr) -> Expr:
    return compare("logical_and", old, new) if new.dtype == "bool" else call("mul", old, new)


COMBINE: dict[str, Combine] = {
    "set": lambda _, new: new,
    **dict.fromkeys(("add", "sum", "mean"), _add),
    **dict.fromkeys(("multiply", "prod"), _mul),
    "amax": lambda old, new: call("maximum", old, new),
    "amin": lambda old, new: call("minimum", old, new),
}
#: of 16-bit floats, torch's CPUs combine these in float32 and round once (scatter_add and its kin)
SUMS = frozenset(("add", "sum", "mean", "multiply", "prod"))


def scatter_into(
    ctx: Context,
    x: Tensor,
    updates: Shape,
    place: Place,
    value: Callable[[list[Index]], Expr],
    how: str,
    ordered: Sequence[int],
    once: str = "",
) -> Tensor:
    """x with x[place(i)] = combine(x[place(i)], value(i)) for every i of `updates`; in the memory of x where it may be.

    ordered: the dimensions of `updates` along which several updates may meet one element; they run innermost.
    once: the family on which torch rounds 16-bit floats once, behind all updates, and not behind each.
    """
    builder = ctx.builder
    own = target_of(ctx, x)
    compute = DTYPES[x.dtype].compute
    if once == builder.family and how in SUMS and x.dtype in ("f16", "bf16"):
        start = Tensor(x.shape, compute, make=lambda i: cast(x.at(i), compute))
        total = scatter_into(ctx, start, updates, place, lambda i: cast(value(i), x.dtype), how, ordered)
        return builder.map(x.shape, x.dtype, lambda i: cast(total.at(i), x.dtype), out=own)
    out = builder.temp(x.shape, x.dtype) if own is None else own
    dims, indices = builder.loops(x.shape) if own is None else ((), [])
    loops = [builder.var(n, "u") if n != ONE else None for n in updates]
    at = [ZERO if v is None else of(v) for v in loops]
    target = out.at(place(at))
    assert isinstance(target, Load)
    new = cast(cast(value(at), x.dtype), compute)
    update = Store(target.buffer, target.index, cast(COMBINE[how](cast(target, compute), new), x.dtype))
    free = [v for d, v in enumerate(loops) if v is not None and d not in ordered]
    late = [v for d, v in enumerate(loops) if v is not None and d in ordered]
    fill = () if own is not None else (_store(out, indices, x.at(indices)),)
    builder.add(Scatter(dims, fill, builder.origin, (*free, *late), (update,), len(free)))
    return out


def _store(out: Tensor, indices: list[Index], value: Expr) -> Store:
    place = out.at(indices)
    assert isinstance(place, Load)
    return Store(place.buffer, place.index, value)


def _reduced(
    ctx: Context,
    x: Tensor,
    updates: Shape,
    place: Place,
    value: Callable[[list[Index]], Expr],
    how: str,
    include_self: bool,
    ordered: Sequence[int],
    once: str = "",
) -> Tensor:
    """scatter_into for torch's reduce=: without `include_self` a touched element starts from the neutral one; a mean
    is divided by the number of its terms."""

    def one(_: list[Index]) -> Expr:
        return number(1, "i64")

    start = x
    places, visits = _distinct(ctx, x.shape, updates, place, ordered)
    if not include_self:
        touched = scatter_into(ctx, filled(places, "bool", False), visits, place, one, "set", ordered)
        neutral = number(_neutral(how, x.dtype), x.dtype)
        start = Tensor(x.shape, x.dtype, make=lambda i: where(touched.at_broadcast(i), neutral, x.at(i)))
    out = scatter_into(ctx, start, updates, place, value, how, ordered, once)
    if how != "mean":
        return out
    first = filled(places, "i64", 1 if include_self else 0)
    count = scatter_into(ctx, first, visits, place, one, "sum", ordered)
    compute = DTYPES[x.dtype].compute
    div = "div" if DTYPES[compute].kind == "f" else "floor_div"

    def mean(i: list[Index]) -> Expr:
        terms = call("maximum", count.at_broadcast(i), number(1, "i64"))
        return call(div, cast(out.at(i), compute), cast(terms, compute))

    return ctx.builder.map(x.shape, x.dtype, mean)


def _distinct(ctx: Context, shape: Shape, updates: Shape, place: Place, ordered: Sequence[int]) -> tuple[Shape, Shape]:
    """The shapes of elements and of updates with one place along each dimension in which all have the same updates."""
    loops = [of(ctx.builder.var(n, "u")) for n in updates]
    at = place(loops)
    same = [
        n == shape[d] and d not in ordered and all(not (v.vars() & at[k].vars()) for k in range(len(at)) if k != d)
        for d, (n, v) in enumerate(zip(updates, loops, strict=True))
    ]
    narrow = [tuple(ONE if s else n for n, s in zip(sizes, same, strict=True)) for sizes in (shape, updates)]
    return narrow[0], narrow[1]


def _neutral(how: str, dtype: str) -> float | int | bool:
    if how in ("amax", "amin"):
        return worst(dtype, lowest=how == "amax") if dtype != "u8" else (0 if how == "amax" else 255)
    return 1 if how == "prod" else 0


# along one dimension, an index for every element --------------------------------------------------------------------
def _along(ctx: Context, x: Tensor, dim: int, index: Tensor) -> tuple[Tensor, Tensor, int, Place]:
    """x and index with at least one dimension, the axis, and where an update goes."""
    if x.rank == 0:
        x = _line(x)
    if index.rank == 0:
        index = _line(index)
    axis = ctx.axis(dim, x.rank)

    def place(i: list[Index]) -> list[Index]:
        return [*i[:axis], indirect(index.at(i), x.shape[axis], wrap=False), *i[axis + 1 :]]

    return x, index, axis, place


def _line(t: Tensor) -> Tensor:
    line = reshape(t, (ONE,))
    assert line is not None
    return line


def _value(source: Any, dtype: str) -> Callable[[list[Index]], Expr]:
    if not isinstance(source, Tensor):
        return lambda _: number(source, dtype)
    line = _line(source) if source.rank == 0 else source
    return line.at


@row("aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter(ctx: Context, x: Tensor, dim: int, index: Tensor, source: Any, reduce: str = "set") -> Tensor:
    if any(n.constant == 0 for n in index.shape):  # torch minds no ranks then
        return x
    wide, index, axis, place = _along(ctx, x, dim, index)
    out = scatter_into(ctx, wide, index.shape, place, _value(source, x.dtype), reduce, [axis], once="cpu")
    return ctx.builder.reshape(out, x.shape)


@row("aten.scatter_add.default")
def scatter_add(ctx: Context, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return scatter(ctx, x, dim, index, source, "add")


@row("aten.scatter_reduce.two")
def scatter_reduce(
    ctx: Context, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    wide, index, axis, place = _along(ctx, x, dim, index)
    value = _value(source, x.dtype)
    out = _reduced(ctx, wide, index.shape, place, value, reduce, include_self, [axis], once="cpu")
    return ctx.builder.reshape(out, x.shape)


# along one dimension, an index for every slice ----------------------------------------------------------------------
def _slices(ctx: Context, x: Tensor, dim: int, index: Tensor, wrap: bool = False) -> tuple[Tensor, int, Shape, Place]:
    wide = _line(x) if x.rank == 0 else x
    index = _line(index) if index.rank == 0 else index
    axis = ctx.axis(dim, wide.rank)
    updates = (*wide.shape[:axis], index.shape[0], *wide.shape[axis + 1 :])

    def place(i: list[Index]) -> list[Index]:
        return [*i[:axis], indirect(index.at([i[axis]]), wide.shape[axis], wrap), *i[axis + 1 :]]

    return wide, axis, updates, place


def _slice_value(ctx: Context, source: Tensor, updates: Shape) -> Callable[[list[Index]], Expr]:
    """Slices of a tensor; a 0-d source is the one element of a 1-d one."""
    if source.rank == 0 and len(updates) == 1:
        return lambda _: source.at([])
    _check_covers(ctx, source.shape, updates)
    return source.at


def _check_covers(ctx: Context, given: Shape, wanted: Shape) -> None:
    """There is a value for each element, for all sizes: torch looks when it runs, not when it traces."""
    if len(given) != len(wanted) or not all(map(_at_least, given, wanted)):
        have, need = (f"[{', '.join(map(str, shape))}]" for shape in (given, wanted))
        raise ctx.refuse(f"a source of shape {have} for elements of shape {need}")


def _at_least(size: Index, other: Index) -> bool:
    """Whether it is proved, or asked in the run, which knows the sizes that it finds."""
    room = size - other
    return room.constant == 0 or any(s.found for s in room.sizes()) or nonnegative_by_cases(room)


@row("aten.index_add.default")
def index_add(ctx: Context, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float | int = 1) -> Tensor:
    wide, axis, updates, place = _slices(ctx, x, dim, index)
    own = _slice_value(ctx, source, updates)
    compute = DTYPES[x.dtype].compute

    def value(i: list[Index]) -> Expr:
        e = cast(own(i), compute)
        return e if alpha == 1 else _mul(e, number(alpha, compute))

    once = alpha == 1 and x.rank > 1  # torch's index_add is a scatter_add here
    return ctx.builder.reshape(
        scatter_into(ctx, wide, updates, place, value, "add", [axis], "cpu" if once else ""), x.shape
    )


@row("aten.index_copy.default")
def index_copy(ctx: Context, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    wide, axis, updates, place = _slices(ctx, x, dim, index)
    value = _slice_value(ctx, source, updates)
    return ctx.builder.reshape(scatter_into(ctx, wide, updates, place, value, "set", [axis]), x.shape)


@row("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(ctx: Context, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    wide, axis, updates, place = _slices(ctx, x, dim, index, wrap=True)
    element = (lambda _: value.at([])) if isinstance(value, Tensor) else _value(value, x.dtype)
    return ctx.builder.reshape(scatter_into(ctx, wide, updates, place, element, "set", [axis]), x.shape)


@row("aten.index_reduce.default")
def index_reduce(
    ctx: Context, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    wide, axis, updates, place = _slices(ctx, x, dim, index)
    value = _slice_value(ctx, source, updates)
    out = _reduced(ctx, wide, updates, place, value, reduce, include_self, [axis])
    return ctx.builder.reshape(out, x.shape)


# indices for several dimensions -------------------------------------------------------------------------------------
@row("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    ctx: Context, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    used = [d for d, t in enumerate(indices) if t is not None]
    tensors = [t for t in indices if t is not None]
    if any(t.dtype == "bool" for t in tensors):
        raise ctx.refuse("a mask with values for each of its elements; use masked_scatter or where")
    picked = broadcast_shapes([t.shape for t in tensors])
    adjacent = used == list(range(used[0], used[-1] + 1))
    start = used[0] if adjacent else 0
    rest = [d for d in range(x.rank) if d not in used]
    before = [d for d in rest if d < start] if adjacent else []
    after = [d for d in rest if d not in before]
    updates = (*(x.shape[d] for d in before), *picked, *(x.shape[d] for d in after))
    ordered = range(len(before), len(before) + len(picked))
    fits = zip(reversed(updates), reversed(values.shape), strict=False)
    if values.rank > len(updates) and any(n != ONE for n in values.shape[: values.rank - len(updates)]):
        raise ctx.refuse("values of more dimensions than the elements that the indices name")
    if any(n != ONE and not _at_least(n, own) for own, n in fits):
        raise ctx.refuse("values of other sizes than the elements that the indices name")

    def place(i: list[Index]) -> list[Index]:
        at: dict[int, Index] = {d: i[k] for k, d in enumerate(before)}
        at |= {d: i[len(before) + len(picked) + k] for k, d in enumerate(after)}
        own = i[len(before) : len(before) + len(picked)]
        for d in used:
            t = indices[d]
            assert t is not None
            at[d] = indirect(t.at_broadcast(own), x.shape[d], wrap=True)
        return [at[d] for d in range(x.rank)]

    how = "add" if accumulate else "set"
    return scatter_into(ctx, x, updates, place, values.at_broadcast, how, list(ordered), once="cuda")


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    rank = max(len(s) for s in shapes)
    wide = [(ONE,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((n for n in column if n != ONE), ONE) for column in zip(*wide, strict=True))


@row("aten.put.default")
def put(ctx: Context, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Positions in the tensor as if it were flat; negative ones count from its end."""
    from ...ir.index import product

    count = product(x.shape)
    _check_covers(ctx, (product(source.shape),), (product(index.shape),))

    def place(i: list[Index]) -> list[Index]:
        return [indirect(index.at(i), count, wrap=True)]

    def value(i: list[Index]) -> Expr:
        from ..core.tensor import linear_index

        return source.at(split_index(linear_index(i, index.shape), source.shape))

    how = "add" if accumulate else "set"
    line = ctx.builder.reshape(x, (count,))
    out = scatter_into(ctx, line, index.shape, place, value, how, list(range(index.rank)), once="cuda")
    return ctx.builder.reshape(out, x.shape)
