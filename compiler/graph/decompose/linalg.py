"""Linear algebra in terms of factorisations (LU, Cholesky, QR, eigh, thin SVD, triangular solves) and products."""

from __future__ import annotations

import torch
from torch import Tensor

from .definitions import definition

aten = torch.ops.aten


def _is_empty(a: Tensor) -> bool:
    return any(isinstance(n, int) and n == 0 for n in a.shape)


def _triangular(a: Tensor, b: Tensor, upper: bool, unit: bool = False) -> Tensor:
    return aten.linalg_solve_triangular.default(a, b, upper=upper, unitriangular=unit)


def _permuted(pivots: Tensor, b: Tensor, back: bool = False) -> Tensor:
    """P^T b for the P of a = P L U; P b when `back`."""
    n = b.shape[-2]
    data = b.new_zeros([*pivots.shape[:-1], n, n])
    permutation = aten.lu_unpack.default(data, pivots, False, True)[0]
    return torch.matmul(permutation if back else permutation.mT, b)


def _solved(lu: Tensor, pivots: Tensor, b: Tensor) -> Tensor:
    batch = torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    lu, pivots = lu.expand([*batch, *lu.shape[-2:]]), pivots.expand([*batch, pivots.shape[-1]])
    b = _permuted(pivots, b.expand([*batch, *b.shape[-2:]]))
    return _triangular(lu, _triangular(lu, b, upper=False, unit=True), upper=True)


@definition("aten.linalg_inv_ex")
def inv_ex(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    if _is_empty(a):
        return a.clone(), a.new_zeros(a.shape[:-2], dtype=torch.int32)
    lu, pivots, info = aten.linalg_lu_factor_ex.default(a)
    unit = torch.eye(a.shape[-1], dtype=a.dtype).expand(a.shape)
    return _solved(lu, pivots, unit), info


@definition("aten._linalg_solve_ex")
def solve_ex(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and list(b.shape) == list(a.shape[:-1]))
    lu, pivots, info = aten.linalg_lu_factor_ex.default(a if left else a.mT)
    right = b.unsqueeze(-1) if vector else b
    x = _solved(lu, pivots, right) if left else _solved(lu, pivots, right.mT).mT
    return (x.squeeze(-1) if vector else x), lu, pivots, info


@definition("aten.linalg_lu_solve")
def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    if not left:
        return lu_solve(lu, pivots, b.mH, left=True, adjoint=not adjoint).mH
    if not adjoint:
        return _solved(lu, pivots, b)
    batch = torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    lu, pivots = lu.expand([*batch, *lu.shape[-2:]]), pivots.expand([*batch, pivots.shape[-1]])
    y = _triangular(lu.mH, b.expand([*batch, *b.shape[-2:]]), upper=False)
    return _permuted(pivots, _triangular(lu.mH, y, upper=True, unit=True), back=True)


@definition("aten.linalg_lu")
def lu(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    packed, pivots, _ = aten.linalg_lu_factor_ex.default(a, pivot=pivot)
    return aten.lu_unpack.default(packed, pivots, True, pivot)


def _parity(pivots: Tensor, dtype: torch.dtype) -> Tensor:
    """1 or -1: every exchange of two rows turns the sign."""
    own = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    odd = (pivots != own).sum(-1) % 2
    return (1 - 2 * odd).to(dtype)


def _as_factored(a: Tensor) -> Tensor:
    """The matrix whose factors torch keeps for the gradient: of a real one in row-major order, the transposed one."""
    return a.mT if a.is_contiguous() and not a.is_complex() else a


@definition("aten._linalg_det")
def det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    lu, pivots, _ = aten.linalg_lu_factor_ex.default(_as_factored(a))
    return torch.diagonal(lu, 0, -2, -1).prod(-1) * _parity(pivots, a.dtype), lu, pivots


@definition("aten._linalg_slogdet")
def slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lu, pivots, _ = aten.linalg_lu_factor_ex.default(_as_factored(a))
    diagonal = torch.diagonal(lu, 0, -2, -1)
    return diagonal.sgn().prod(-1) * _parity(pivots, a.dtype), diagonal.abs().log().sum(-1), lu, pivots


@definition("aten.cholesky")
def cholesky(a: Tensor, upper: bool = False) -> Tensor:
    return aten.linalg_cholesky_ex.default(a, upper=upper)[0]


@definition("aten.cholesky_solve", "aten._cholesky_solve_helper")
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mH if upper else factor
    return _triangular(lower.mH, _triangular(lower, b, upper=False), upper=True)


@definition("aten.cholesky_inverse")
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    unit = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return cholesky_solve(unit, factor, upper)


@definition("aten.triangular_solve")
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    own = a.mT if transpose else a
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = _triangular(own, b, upper=upper != transpose, unit=unitriangular)
    return x, a.expand([*batch, *a.shape[-2:]]).clone()


@definition("aten.linalg_qr")
def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    m, n = a.shape[-2:]
    packed, tau = aten.geqrf.default(a)
    k = min(m, n)
    if mode == "r":
        return a.new_empty([0]), torch.triu(packed[..., :k, :])
    columns = m if mode == "complete" else k
    wide = packed[..., :, :k]
    if columns > k:
        wide = torch.cat([wide, a.new_zeros([*a.shape[:-1], columns - k])], -1)
    return aten.linalg_householder_product.default(wide, tau), torch.triu(packed[..., :columns, :])


@definition("aten.ormqr")
def ormqr(a: Tensor, tau: Tensor, c: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    m, k = a.shape[-2:]
    k = min(m, k)
    a, tau = a[..., :k], tau[..., :k]
    q = aten.linalg_householder_product.default(torch.cat([a, a.new_zeros([*a.shape[:-1], m - k])], -1), tau)
    q = q.mH if transpose else q
    return torch.matmul(q, c) if left else torch.matmul(c, q)


@definition("aten.linalg_pinv.atol_rtol_tensor")
def pinv(a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    m, n = a.shape[-2:]
    if _is_empty(a):
        return a.new_zeros([*a.shape[:-2], n, m])
    real = a.dtype.to_real()
    relative = rtol if rtol is not None else torch.full([], torch.finfo(real).eps * max(m, n), dtype=real)
    absolute = atol if atol is not None else torch.zeros([], dtype=real)
    if rtol is None and atol is not None:
        relative = torch.where(atol > 0, torch.zeros_like(atol), relative)
    if hermitian:
        values, vectors = aten._linalg_eigh.default(a)
        u, s, vh = vectors, values, vectors.mH
    else:
        u, s, vh = aten._linalg_svd.default(a, False, True)
    size = s.abs()
    bound = torch.maximum(absolute.unsqueeze(-1), relative.unsqueeze(-1) * size.amax(-1, keepdim=True))
    inverse = torch.where(size > bound, 1 / s, torch.zeros_like(s))
    return torch.matmul(vh.mH * inverse.unsqueeze(-2), u.mH)
