"""Products of quantised weights as loops: for weights that are computed, and group sizes that panels do not take.

model/operators/quantised.py says what the operators mean.
"""

from __future__ import annotations

from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import Index, as_index, product
from ..core.builder import call, number
from ..core.context import Context
from ..core.tensor import Tensor, permute
from .matmul import product_of


def int_product(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """a int8 [m, k] times b int8 [k, n] in int32."""
    shape = (a.shape[0], b.shape[1], a.shape[1])

    def term(i: list[Index]) -> Expr:
        return call("mul", cast(a.at([i[0], i[2]]), "i32"), cast(b.at([i[2], i[1]]), "i32"))

    (out,) = ctx.builder.reduce(shape, [2], [("sum", term)], [("i32", lambda accs: accs[0])])
    return out


def float_product(ctx: Context, x: Tensor, weight: Tensor) -> Tensor:
    """x [..., k] times weight [n, k] in the type of both."""
    rows = ctx.builder.reshape(x, (product(x.shape[:-1]), x.shape[-1]))
    out = product_of(ctx, rows, permute(weight, (1, 0)))
    return ctx.builder.reshape(out, (*x.shape[:-1], weight.shape[0]))


def integer_at(w: Tensor, n: Index, k: Index, bits: int, dtype: str) -> Expr:
    """Weight (n, k) in `dtype`."""
    if bits == 8 or w.dtype == "i8":
        return cast(w.at([n, k]), dtype)
    byte = cast(w.at([n, k // as_index(2)]), "i32")
    shift = call("mul", number(4, "i32"), cast(IndexValue(k % as_index(2)), "i32"))
    half = call("bit_and", call("shift_right", byte, shift), number(15, "i32"))
    return cast(call("sub", half, number(8, "i32")), dtype)


def centred_at(w: Tensor, zeros: Tensor | None, n: Index, k: Index, bits: int, group: int, dtype: str) -> Expr:
    """Weight (n, k) less its zero."""
    value = integer_at(w, n, k, bits, dtype)
    return value if zeros is None else call("sub", value, cast(zeros.at([n, k // as_index(group)]), dtype))


def dequantised(
    ctx: Context, w: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int, k: Index, dtype: str
) -> Tensor:
    """What the weights stand for, [n, k]."""

    def value(i: list[Index]) -> Expr:
        centred = centred_at(w, zeros, i[0], i[1], bits, group, dtype)
        return call("mul", centred, cast(scales.at([i[0], i[1] // as_index(group)]), dtype))

    return ctx.builder.map((w.shape[0], k), dtype, value)


def grouped_integer_sums(
    ctx: Context,
    a: Tensor,
    a_zeros: Tensor | None,
    w: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bits: int,
    group: int,
    dtype: str,
) -> Tensor:
    """The sums of each group as integers, and then those over groups in `dtype`."""
    lead, (n, groups) = a.shape[:-1], scales.shape
    exact = "i32" if zeros is None or zeros.dtype in ("i8", "u8", "i16", "i32") else dtype

    def term(i: list[Index]) -> Expr:
        k = i[-2] * as_index(group) + i[-1]
        left = cast(a.at([*i[:-3], k]), exact)
        if a_zeros is not None:
            left = call("sub", left, cast(a_zeros.at([*i[:-3], as_index(0)]), exact))
        return call("mul", left, centred_at(w, zeros, i[-3], k, bits, group, exact))

    shape = (*lead, n, groups, as_index(group))
    (sums,) = ctx.builder.reduce(shape, [len(shape) - 1], [("sum", term)], [(exact, lambda accs: accs[0])])

    def scaled(i: list[Index]) -> Expr:
        return call("mul", cast(sums.at(i), dtype), cast(scales.at(i[-2:]), dtype))

    (out,) = ctx.builder.reduce(shape[:-1], [len(shape) - 2], [("sum", scaled)], [(dtype, lambda accs: accs[0])])
    return out
