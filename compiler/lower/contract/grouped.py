"""Products of rows with the matrix of their group, as mixtures of experts have them."""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import Index
from ..core.builder import call, compare, number, size_value, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor
from ..indexing.gather import indirect


@row("transformers.grouped_mm_fallback.default")
def grouped_mm(ctx: Context, x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """x [rows, k] with weights [groups, k, n] -> [rows, n]: rows before ends[0] are of group 0, and so on; those behind
    the last end are zero. Each row reads its matrix where it lies: none is copied."""
    (rows, depth), (groups, _, columns) = x.shape, weights.shape
    compute = DTYPES[x.dtype].compute

    def passed(i: list[Index]) -> Expr:
        end, place = cast(ends.at([i[1]]), "i64"), size_value(i[0], "i64")
        return where(compare("le", end, place), number(1, "i64"), number(0, "i64"))

    (group,) = ctx.builder.reduce((rows, groups), [1], [("sum", passed)], [("i64", lambda a: a[0])])

    def term(i: list[Index]) -> Expr:
        which = indirect(call("minimum", group.at([i[0]]), size_value(groups - 1, "i64")), groups, wrap=False)
        return call("mul", cast(x.at([i[0], i[1]]), compute), cast(weights.at([which, i[1], i[2]]), compute))

    (sums,) = ctx.builder.reduce((rows, depth, columns), [1], [("sum", term)], [(compute, lambda a: a[0])])

    def element(i: list[Index]) -> Expr:
        inside = compare("lt", group.at([i[0]]), size_value(groups, "i64"))
        return where(inside, sums.at(i), number(0.0, compute))

    return ctx.builder.map((rows, columns), ctx.result_dtype(), element)
