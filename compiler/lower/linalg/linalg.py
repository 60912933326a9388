"""Factorisations of matrices: routines of kernels/linalg/linalg.h. All else is decomposed into them
and products (graph/decompose/linalg.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import Expr, IndexValue, cast
from ...ir.index import Index, minimum
from ..core.builder import compare, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.routines import call_routine
from ..core.tensor import Shape, Tensor, expand, permute
from ..pointwise.create import filled


def _floats(ctx: Context, *tensors: Tensor) -> None:
    for t in tensors:
        if t.dtype not in ("f32", "f64"):
            raise ctx.refuse(f"linear algebra in {t.dtype} is not supported")


def _split(x: Tensor) -> tuple[Shape, Index, Index]:
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def transposed(x: Tensor) -> Tensor:
    order = list(range(x.rank))
    return permute(x, [*order[:-2], order[-1], order[-2]])


@row("aten.linalg_lu_factor_ex.default")
def lu_factor(ctx: Context, a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    _floats(ctx, a)
    if not pivot:
        raise ctx.refuse("an LU factorisation without pivots is not supported")
    batch, m, n = _split(a)
    outputs: list[tuple[Shape, str]] = [((m, n), a.dtype), ((minimum(m, n),), "i32"), ((), "i32")]
    return tuple(call_routine(ctx.builder, "lu", batch, [(a, 2)], outputs, [m, n]))


@row("aten.linalg_solve_triangular.default")
def solve_triangular(
    ctx: Context, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """x with a x = b, or x a = b, which is a^T x^T = b^T."""
    _floats(ctx, a, b)
    if not left:
        a, b, upper = transposed(a), transposed(b), not upper
    shape = ctx.result_shape()
    batch = shape[:-2]
    a, b = expand(a, (*batch, *a.shape[-2:])), expand(b, (*batch, *b.shape[-2:]))
    _, n, k = _split(b)
    sizes: list[Index | int] = [n, k, int(upper), int(unitriangular)]
    (x,) = call_routine(ctx.builder, "triangular", batch, [(a, 2), (b, 2)], [((n, k), a.dtype)], sizes)
    return x if left else transposed(x)


@row("aten.linalg_cholesky_ex.default")
def cholesky_ex(ctx: Context, a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, ...]:
    _floats(ctx, a)
    batch, n, _ = _split(a)
    source = transposed(a) if upper else a
    outputs: list[tuple[Shape, str]] = [((n, n), a.dtype), ((), "i32")]
    lower, info = call_routine(ctx.builder, "cholesky", batch, [(source, 2)], outputs, [n])
    return (transposed(lower) if upper else lower), info


@row("aten.geqrf.default")
def geqrf(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
    _floats(ctx, a)
    batch, m, n = _split(a)
    outputs: list[tuple[Shape, str]] = [((m, n), a.dtype), ((minimum(m, n),), a.dtype)]
    return tuple(call_routine(ctx.builder, "qr", batch, [(a, 2)], outputs, [m, n]))


@row("aten.linalg_householder_product.default")
def householder_product(ctx: Context, a: Tensor, tau: Tensor) -> Tensor:
    _floats(ctx, a)
    batch, m, n = _split(a)
    inputs = [(a, 2), (tau, 1)]
    return call_routine(ctx.builder, "reflectors", batch, inputs, [((m, n), a.dtype)], [m, n, tau.shape[-1]])[0]


@row("aten._linalg_eigh.default")
def eigh(ctx: Context, a: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, ...]:
    _floats(ctx, a)
    batch, n, _ = _split(a)
    source = a if uplo.upper() == "L" else transposed(a)
    outputs: list[tuple[Shape, str]] = [((n,), a.dtype), ((n, n), a.dtype)]
    values, vectors = call_routine(ctx.builder, "eigh", batch, [(source, 2)], outputs, [n])
    return values, (vectors if compute_v else filled(ctx.result_shape(1), a.dtype, 0))


@row("aten._linalg_svd.default")
def svd(
    ctx: Context, a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None
) -> tuple[Tensor, ...]:
    _floats(ctx, a)
    batch, m, n = _split(a)
    wide = not (m - n).nonnegative()
    if wide and not (n - m).nonnegative():
        raise ctx.refuse("a singular value decomposition needs to know which of the two sizes is larger")
    if wide:
        m, n = n, m
    columns = m if full_matrices and compute_uv else n
    source = transposed(a) if wide else a
    outputs: list[tuple[Shape, str]] = [((m, columns), a.dtype), ((n,), a.dtype), ((n, n), a.dtype)]
    u, s, v = call_routine(ctx.builder, "svd", batch, [(source, 2)], outputs, [m, n, columns])
    if not compute_uv:
        return filled(ctx.result_shape(0), a.dtype, 0), s, filled(ctx.result_shape(2), a.dtype, 0)
    return (v, s, transposed(u)) if wide else (u, s, transposed(v))


@row("mycc.eig.default")
def eig(ctx: Context, a: Tensor) -> tuple[Tensor, ...]:
    _floats(ctx, a)
    batch, n, _ = _split(a)
    outputs: list[tuple[Shape, str]] = [*[((n,), a.dtype)] * 2, *[((n, n), a.dtype)] * 2]
    return tuple(call_routine(ctx.builder, "eig", batch, [(a, 2)], outputs, [n]))


@row("aten.linalg_ldl_factor_ex.default")
def ldl_factor(ctx: Context, a: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Tensor, ...]:
    _floats(ctx, a)
    batch, n, _ = _split(a)
    outputs: list[tuple[Shape, str]] = [((n, n), a.dtype), ((n,), "i32"), ((), "i32")]
    return tuple(call_routine(ctx.builder, "ldl", batch, [(a, 2)], outputs, [n, 0]))


@row("aten.linalg_ldl_solve.default")
def ldl_solve(ctx: Context, ld: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool = False) -> Tensor:
    _floats(ctx, ld, b)
    batch = ctx.result_shape()[:-2]
    ld, b, pivots = (expand(t, (*batch, *t.shape[t.rank - k :])) for t, k in ((ld, 2), (b, 2), (pivots, 1)))
    _, n, m = _split(b)
    inputs = [(ld, 2), (pivots, 1), (b, 2)]
    return call_routine(ctx.builder, "ldl_solve", batch, inputs, [((n, m), b.dtype)], [n, m, 0])[0]


@row("aten.linalg_matrix_exp.default")
def matrix_exp(ctx: Context, a: Tensor) -> Tensor:
    dtype = a.dtype
    if dtype in ("f16", "bf16"):  # rounded once, at the end
        half = a
        a = ctx.builder.map(half.shape, "f32", lambda i: cast(half.at(i), "f32"))
    _floats(ctx, a)
    batch, n, _ = _split(a)
    (wide,) = call_routine(ctx.builder, "matrix_exp", batch, [(a, 2)], [((n, n), a.dtype)], [n])
    return wide if wide.dtype == dtype else ctx.builder.map(wide.shape, dtype, lambda i: cast(wide.at(i), dtype))


@row("aten.lu_unpack.default")
def lu_unpack(
    ctx: Context, lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, ...]:
    """P, L and U of a packed factorisation with a = P L U."""
    batch, m, n = _split(lu)
    least = minimum(m, n)
    builder = ctx.builder
    empty = filled(ctx.result_shape(0), lu.dtype, 0)
    lower, upper, permutation = empty, empty, filled(ctx.result_shape(0), lu.dtype, 0)
    if unpack_data:

        def below(i: list[Index]) -> Expr:
            on, under = (compare(op, IndexValue(i[-2]), IndexValue(i[-1])) for op in ("eq", "gt"))
            return where(on, number(1, lu.dtype), where(under, lu.at(i), number(0, lu.dtype)))

        def above(i: list[Index]) -> Expr:
            return where(compare("le", IndexValue(i[-2]), IndexValue(i[-1])), lu.at(i), number(0, lu.dtype))

        lower = builder.map((*batch, m, least), lu.dtype, below)
        upper = builder.map((*batch, least, n), lu.dtype, above)
    if unpack_pivots:
        (order,) = call_routine(builder, "pivot_order", batch, [(pivots, 1)], [((m,), "i64")], [m, pivots.shape[-1]])

        def moved(i: list[Index]) -> Expr:
            return cast(compare("eq", order.at([*i[:-2], i[-1]]), IndexValue(i[-2])), lu.dtype)

        permutation = builder.map((*batch, m, m), lu.dtype, moved)
    return permutation, lower, upper


# complex matrices, real and imaginary parts apart (graph/complex/linalg.py) ------------------------------------------
def _complex_routine(
    ctx: Context, name: str, inputs: Sequence[tuple[Tensor, int]], outputs: Sequence[tuple[Shape, str]], *sizes: Any
) -> tuple[Tensor, ...]:
    matrix, rank = inputs[0]
    _floats(ctx, matrix)
    return tuple(call_routine(ctx.builder, f"complex_{name}", matrix.shape[:-rank], inputs, outputs, sizes))


@row("mycc.complex_lu.default")
def complex_lu(ctx: Context, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    _, m, n = _split(re)
    part = ((m, n), re.dtype)
    outputs: list[tuple[Shape, str]] = [part, part, ((minimum(m, n),), "i32"), ((), "i32")]
    return _complex_routine(ctx, "lu", [(re, 2), (im, 2)], outputs, m, n)


@row("mycc.complex_triangular.default")
def complex_triangular(
    ctx: Context, a: Tensor, ai: Tensor, b: Tensor, bi: Tensor, upper: bool, unit: bool
) -> tuple[Tensor, ...]:
    _, n, k = _split(b)
    inputs = [(t, 2) for t in (a, ai, b, bi)]
    return _complex_routine(ctx, "triangular", inputs, [((n, k), a.dtype)] * 2, n, k, int(upper), int(unit))


@row("mycc.complex_cholesky.default")
def complex_cholesky(ctx: Context, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    _, n, _ = _split(re)
    outputs: list[tuple[Shape, str]] = [((n, n), re.dtype), ((n, n), re.dtype), ((), "i32")]
    return _complex_routine(ctx, "cholesky", [(re, 2), (im, 2)], outputs, n)


@row("mycc.complex_qr.default")
def complex_qr(ctx: Context, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    _, m, n = _split(re)
    part, tau = ((m, n), re.dtype), ((minimum(m, n),), re.dtype)
    return _complex_routine(ctx, "qr", [(re, 2), (im, 2)], [part, part, tau, tau], m, n)


@row("mycc.complex_reflectors.default")
def complex_reflectors(ctx: Context, a: Tensor, ai: Tensor, tau: Tensor, taui: Tensor) -> tuple[Tensor, ...]:
    _, m, n = _split(a)
    inputs = [(a, 2), (ai, 2), (tau, 1), (taui, 1)]
    return _complex_routine(ctx, "reflectors", inputs, [((m, n), a.dtype)] * 2, m, n, tau.shape[-1])


@row("mycc.complex_eigh.default")
def complex_eigh(ctx: Context, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    _, n, _ = _split(re)
    outputs: list[tuple[Shape, str]] = [((n,), re.dtype), ((n, n), re.dtype), ((n, n), re.dtype)]
    return _complex_routine(ctx, "eigh", [(re, 2), (im, 2)], outputs, n)


@row("mycc.complex_svd.default")
def complex_svd(ctx: Context, re: Tensor, im: Tensor, full: bool) -> tuple[Tensor, ...]:
    _, m, n = _split(re)
    columns = m if full else n
    u, v = ((m, columns), re.dtype), ((n, n), re.dtype)
    return _complex_routine(ctx, "svd", [(re, 2), (im, 2)], [u, u, ((n,), re.dtype), v, v], m, n, columns)


@row("mycc.complex_eig.default")
def complex_eig(ctx: Context, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    _, n, _ = _split(re)
    outputs: list[tuple[Shape, str]] = [*[((n,), re.dtype)] * 2, *[((n, n), re.dtype)] * 2]
    return _complex_routine(ctx, "eig", [(re, 2), (im, 2)], outputs, n)


@row("mycc.complex_ldl.default")
def complex_ldl(ctx: Context, re: Tensor, im: Tensor, hermitian: bool) -> tuple[Tensor, ...]:
    _, n, _ = _split(re)
    outputs: list[tuple[Shape, str]] = [((n, n), re.dtype), ((n, n), re.dtype), ((n,), "i32"), ((), "i32")]
    return _complex_routine(ctx, "ldl", [(re, 2), (im, 2)], outputs, n, int(hermitian))


@row("mycc.complex_ldl_solve.default")
def complex_ldl_solve(
    ctx: Context, ld: Tensor, ldi: Tensor, pivots: Tensor, b: Tensor, bi: Tensor, hermitian: bool
) -> tuple[Tensor, ...]:
    _, n, m = _split(b)
    inputs = [(ld, 2), (ldi, 2), (pivots, 1), (b, 2), (bi, 2)]
    return _complex_routine(ctx, "ldl_solve", inputs, [((n, m), b.dtype)] * 2, n, m, int(hermitian))
