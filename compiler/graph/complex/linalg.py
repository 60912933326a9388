"""Rules: linear algebra, through the routines for real and imaginary parts (operators/own.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .arithmetic import conjugate
from .parts import Call, Complex, Refused, parts, rule

mycc = torch.ops.mycc


def transposed(a: Complex) -> Complex:
    return Complex(a.re.mT, a.im.mT)


def adjoint(a: Complex) -> Complex:
    return conjugate(transposed(a))


@rule("linalg_lu_factor_ex")
def lu_factor(call: Call, a: Complex, *, pivot: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    if not pivot:
        raise Refused("an LU factorisation without pivots is not supported")
    re, im, pivots, info = mycc.complex_lu(a.re, a.im)
    return Complex(re, im), pivots, info


@rule("linalg_solve_triangular")
def solve_triangular(
    call: Call, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Complex:
    a, b = parts(a, call.real), parts(b, call.real)
    if not left:
        a, b, upper = transposed(a), transposed(b), not upper
    batch = torch.broadcast_shapes(a.re.shape[:-2], b.re.shape[:-2])
    a, b = (Complex(*(p.expand([*batch, *p.shape[-2:]]) for p in z)) for z in (a, b))
    x = Complex(*mycc.complex_triangular(a.re, a.im, b.re, b.im, upper, unitriangular))
    return x if left else transposed(x)


@rule("linalg_cholesky_ex")
def cholesky_ex(call: Call, a: Complex, *, upper: bool = False, check_errors: bool = False) -> tuple[Any, ...]:
    source = adjoint(a) if upper else a
    re, im, info = mycc.complex_cholesky(source.re, source.im)
    return (adjoint(Complex(re, im)) if upper else Complex(re, im)), info


@rule("geqrf")
def geqrf(call: Call, a: Complex) -> tuple[Any, ...]:
    re, im, tau, tau_im = mycc.complex_qr(a.re, a.im)
    return Complex(re, im), Complex(tau, tau_im)


@rule("linalg_householder_product")
def householder_product(call: Call, a: Complex, tau: Complex) -> Complex:
    return Complex(*mycc.complex_reflectors(a.re, a.im, tau.re, tau.im))


@rule("_linalg_eigh")
def eigh(call: Call, a: Complex, uplo: str = "L", compute_v: bool = True) -> tuple[Any, ...]:
    source = a if uplo.upper() == "L" else adjoint(a)
    values, re, im = mycc.complex_eigh(source.re, source.im)
    if compute_v:
        return values, Complex(re, im)
    empty = torch.zeros(call.val[1].shape, dtype=call.real)
    return values, Complex(empty, empty)


@rule("_linalg_svd")
def svd(
    call: Call, a: Complex, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None
) -> tuple[Any, ...]:
    """Of a wide matrix, that of its adjoint."""
    wide = a.re.shape[-2] < a.re.shape[-1]
    source = adjoint(a) if wide else a
    u_re, u_im, s, v_re, v_im = mycc.complex_svd(source.re, source.im, full_matrices and compute_uv)
    u, v = Complex(u_re, u_im), Complex(v_re, v_im)
    if not compute_uv:
        empty = [torch.zeros(call.val[i].shape, dtype=call.real) for i in (0, 2)]
        return Complex(empty[0], empty[0]), s, Complex(empty[1], empty[1])
    return (v, s, adjoint(u)) if wide else (u, s, adjoint(v))


@rule("linalg_matrix_exp")
def matrix_exp(call: Call, a: Complex) -> Complex:
    """By the real matrix [[re, -im], [im, re]], which multiplies as complex numbers do."""
    n = a.re.shape[-1]
    wide = torch.cat([torch.cat([a.re, -a.im], -1), torch.cat([a.im, a.re], -1)], -2)
    left = torch.ops.aten.linalg_matrix_exp.default(wide).narrow(-1, 0, n)
    return Complex(left.narrow(-2, 0, n), left.narrow(-2, n, n))


@rule("lu_unpack")
def lu_unpack(call: Call, lu: Complex, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    permutation, lower, upper = call.target(lu.re, pivots, unpack_data, unpack_pivots)
    none = torch.zeros_like(permutation)
    if not unpack_data:
        return Complex(permutation, none), Complex(lower, lower), Complex(upper, upper)
    k = min(lu.re.shape[-2:])
    below, above = lu.im[..., :k].tril(-1), lu.im[..., :k, :].triu()
    return Complex(permutation, none), Complex(lower, below), Complex(upper, above)


def _eig(a: Any) -> tuple[Complex, Complex]:
    parts_of_both = mycc.complex_eig(a.re, a.im) if isinstance(a, Complex) else mycc.eig(a)
    return Complex(*parts_of_both[:2]), Complex(*parts_of_both[2:])


@rule("linalg_eig")
def eig(call: Call, a: Any) -> tuple[Any, ...]:
    return _eig(a)


@rule("linalg_eigvals _linalg_eigvals")
def eigvals(call: Call, a: Any) -> Complex:
    return _eig(a)[0]


@rule("linalg_ldl_factor_ex")
def ldl_factor(call: Call, a: Complex, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Any, ...]:
    re, im, pivots, info = mycc.complex_ldl(a.re, a.im, hermitian)
    return Complex(re, im), pivots, info


@rule("linalg_ldl_solve")
def ldl_solve(call: Call, ld: Any, pivots: Tensor, b: Any, *, hermitian: bool = False) -> Complex:
    ld, b = parts(ld, call.real), parts(b, call.real)
    batch = torch.broadcast_shapes(ld.re.shape[:-2], b.re.shape[:-2])
    ld, b = (Complex(*(p.expand([*batch, *p.shape[-2:]]) for p in z)) for z in (ld, b))
    pivots = pivots.expand([*batch, pivots.shape[-1]])
    return Complex(*mycc.complex_ldl_solve(ld.re, ld.im, pivots, b.re, b.im, hermitian))
