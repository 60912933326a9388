"""References of linear algebra: LAPACK by torch, in float64. Complex matrices come as real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .numbers import Array

Tensor = Any  # torch.Tensor; torch is imported when a reference is called


class _Row(NamedTuple):
    """A factorisation of tensors, and the blocks it takes and gives: (m)atrices of numbers, which are complex in the
    complex form; (r)eal numbers and integers; (c)omplex in both forms. shapes: of the inputs, by the sizes."""

    inputs: str
    outputs: str
    shapes: Callable[..., Sequence[tuple[int, ...]]]
    function: Callable[..., Sequence[Tensor]]


def _lu(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    import torch

    return torch.linalg.lu_factor_ex(a)


def _triangular(sizes: Sequence[int], a: Tensor, b: Tensor) -> Sequence[Tensor]:
    import torch

    _, _, upper, unit = sizes
    return (torch.linalg.solve_triangular(a, b, upper=bool(upper), unitriangular=bool(unit)),)


def _cholesky(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    import torch

    lower = a.tril()
    whole = lower + lower.tril(-1).mH
    return torch.linalg.cholesky_ex(whole)


def _qr(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    import torch

    return torch.geqrf(a)


def _reflectors(sizes: Sequence[int], a: Tensor, tau: Tensor) -> Sequence[Tensor]:
    import torch

    return (torch.linalg.householder_product(a, tau),)


def _eigh(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    import torch

    return torch.linalg.eigh(a, UPLO="L")


def _svd(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    import torch

    _, n, columns = sizes
    u, s, vh = torch.linalg.svd(a, full_matrices=columns > n)
    return u, s, vh.mH


def _eig(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    """Vectors of length 1 whose largest element is real."""
    import torch

    w, v = torch.linalg.eig(a)
    if not v.numel():
        return w, v
    top = v.gather(0, v.abs().argmax(0, keepdim=True))
    return w, v * (top.conj() / top.abs()) / v.norm(dim=0, keepdim=True)


def _ldl(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    import torch

    return torch.linalg.ldl_factor_ex(a, hermitian=bool(sizes[1]))


def _ldl_solve(sizes: Sequence[int], ld: Tensor, pivots: Tensor, b: Tensor) -> Sequence[Tensor]:
    import torch

    return (torch.linalg.ldl_solve(ld, pivots, b, hermitian=bool(sizes[2])),)


def _matrix_exp(sizes: Sequence[int], a: Tensor) -> Sequence[Tensor]:
    import torch

    return (torch.linalg.matrix_exp(a),)


def _square(n: int, *_: int) -> Sequence[tuple[int, ...]]:
    return ((n, n),)


def _oblong(m: int, n: int, *_: int) -> Sequence[tuple[int, ...]]:
    return ((m, n),)


_ROWS: Mapping[str, _Row] = {
    "lu": _Row("m", "mrr", _oblong, _lu),
    "triangular": _Row("mm", "m", lambda n, k, *_: ((n, n), (n, k)), _triangular),
    "cholesky": _Row("m", "mr", _square, _cholesky),
    "qr": _Row("m", "mm", _oblong, _qr),
    "reflectors": _Row("mm", "m", lambda m, n, k: ((m, n), (k,)), _reflectors),
    "eigh": _Row("m", "rm", _square, _eigh),
    "svd": _Row("m", "mrm", _oblong, _svd),
    "eig": _Row("m", "cc", _square, _eig),
    "ldl": _Row("m", "mrr", _square, _ldl),
    "ldl_solve": _Row("mrm", "m", lambda n, m, _: ((n, n), (n,), (n, m)), _ldl_solve),
    "matrix_exp": _Row("m", "m", _square, _matrix_exp),
}


def _reference(row: _Row, is_complex: bool) -> Callable[[Sequence[Array], Sequence[int]], Sequence[Array]]:
    def reference(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
        import torch

        blocks, operands = iter(given), []
        for kind, shape in zip(row.inputs, row.shapes(*sizes), strict=True):
            count = int(np.prod(shape))
            block = next(blocks)[:count]
            if is_complex and kind == "m":
                block = block + 1j * next(blocks)[:count]
            operands.append(torch.from_numpy(block.reshape(shape).copy()))
        results: list[Array] = []
        for kind, made in zip(row.outputs, row.function(sizes, *operands), strict=True):
            parted = kind == "c" or (is_complex and kind == "m")
            results += [made.real.numpy(), made.imag.numpy()] if parted else [made.numpy()]
        return [np.ascontiguousarray(r).reshape(-1) for r in results]

    return reference


def _pivot_order(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """The row that the exchanges of LU bring to each place."""
    m, k = sizes
    order = np.arange(m)
    for i, pivot in enumerate(given[0][:k]):
        if 1 <= pivot <= m:
            order[[i, pivot - 1]] = order[[pivot - 1, i]]
    return (order,)


FACTORISATIONS = {
    "pivot_order": _pivot_order,
    **{name: _reference(row, False) for name, row in _ROWS.items()},
    **{f"complex_{name}": _reference(row, True) for name, row in _ROWS.items() if name != "matrix_exp"},
}
