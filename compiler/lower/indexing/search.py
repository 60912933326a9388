"""Searches in sorted rows: edges are counted where they are few, else found by halving (kernels/sort/search.h)."""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import ZERO, Index, as_index, product
from ...machine.cpu_loops import SPLITS
from ..core.builder import call, compare, size_value, where
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import Shape, Tensor, expand, unsqueeze
from ..pointwise.create import filled
from .gather import indirect


@row("aten.searchsorted.Tensor")
def searchsorted(
    ctx: Context,
    edges: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    count, dtype = edges.shape[-1], ctx.result_dtype()
    if count == ZERO or ZERO in values.shape:
        return filled(values.shape, dtype, 0)
    if sorter is not None:
        edges = _in_order(ctx, edges, sorter)
    right = right or side == "right"
    if ctx.builder.family == "cuda" or (count.constant or SPLITS.edges + 1) <= SPLITS.edges:
        return _counted(ctx, edges, values, right)
    if edges.rank > 1:
        return _halved(ctx, edges, values, right)
    n = product(values.shape)
    pieces = as_index(_pieces(n))
    lines = ctx.builder.reshape(values, (pieces, n // pieces))
    return ctx.builder.reshape(_halved(ctx, edges, lines, right), values.shape)


def _halved(ctx: Context, edges: Tensor, values: Tensor, right: bool) -> Tensor:
    """Places in the edges, a row of them for all values or for each row of these."""
    n = values.shape[-1]
    outputs: list[tuple[Shape, str]] = [((n,), ctx.result_dtype())]
    sizes = [edges.shape[-1], n, as_index(int(right))]
    return call_routine(ctx.builder, "search", values.shape[:-1], [(edges, 1), (values, 1)], outputs, sizes)[0]


def _in_order(ctx: Context, edges: Tensor, sorter: Tensor) -> Tensor:
    count = edges.shape[-1]
    return ctx.builder.map(
        edges.shape, edges.dtype, lambda i: edges.at([*i[:-1], indirect(sorter.at(i), count, wrap=False)])
    )


def _pieces(n: Index) -> int:
    """Equal pieces of a line, for several threads; 1 of one whose length is not known."""
    length = n.constant or 1
    return next((p for p in range(SPLITS.lines, 1, -1) if length % p == 0 and length // p >= SPLITS.line), 1)


def _counted(ctx: Context, edges: Tensor, values: Tensor, right: bool) -> Tensor:
    """The place of the first edge behind each value, or at it; of integers, how many edges lie in front of it."""
    compute = DTYPES[values.dtype].compute
    shape = (*values.shape, edges.shape[-1])
    each = unsqueeze(edges, edges.rank - 1) if edges.rank > 1 else edges
    each, wanted = expand(each, shape), expand(unsqueeze(values, values.rank), shape)

    def below(i: list[Index]) -> Expr:
        edge, value = cast(each.at(i), compute), cast(wanted.at(i), compute)
        return cast(compare("logical_not", compare("gt" if right else "ge", edge, value)), "i64")

    def first(i: list[Index]) -> Expr:
        edge, value = cast(each.at(i), compute), cast(wanted.at(i), compute)
        behind = compare("gt" if right else "ge", edge, value)
        return where(behind, size_value(i[-1], "i64"), size_value(shape[-1], "i64"))

    # NaN at the end of the edges lies neither below a value nor behind it
    reduction = ("min", first) if DTYPES[compute].kind == "f" else ("sum", below)
    dtype, count = ctx.result_dtype(), size_value(shape[-1], "i64")
    (out,) = ctx.builder.reduce(
        shape,
        [values.rank],
        [reduction],
        [(dtype, lambda accs: cast(call("minimum", accs[0], count), dtype))],  # the minimum of no edges is larger
        False,
        tuple(range(len(shape))),
    )
    return out
