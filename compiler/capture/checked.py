"""Functions of torch that refuse values of their tensors, with that refusal as an assertion of the run.

    linalg.inv(a)          ->   x, info = linalg.inv_ex(a); assert all(info == 0)
    quantile(x, q)         ->   assert all(0 <= q <= 1); quantile(x, q)

torch.export leaves these checks out of its graph: they look at values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_SINGULAR = "could not be completed because the input matrix is singular"
_INDEFINITE = "the factorization could not be completed because the input is not positive-definite"


def _succeeded(info: Tensor, text: str) -> None:
    torch._assert_async((info == 0).all(), text)


def inverse(A: Tensor) -> Tensor:
    """linalg.inv of matrices that are not singular."""
    x, info = torch.linalg.inv_ex(A)
    _succeeded(info, f"linalg.inv: the inversion {_SINGULAR}")
    return x


def solution(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """linalg.solve with a matrix that is not singular."""
    x, info = torch.linalg.solve_ex(A, B, left=left)
    _succeeded(info, f"linalg.solve: the solution {_SINGULAR}")
    return x


def cholesky(A: Tensor, upper: bool = False) -> Tensor:
    """linalg.cholesky of positive definite matrices."""
    factor, info = torch.linalg.cholesky_ex(A, upper=upper)
    _succeeded(info, f"linalg.cholesky: {_INDEFINITE}")
    return factor


def histogram(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """histc; of a range that the elements give, which is finite."""
    if min == max and input.numel():
        finite = torch.isfinite(input.amin()) & torch.isfinite(input.amax())
        torch._assert_async(finite, "torch.histc: the range of the elements is not finite")
    return torch.histc(input, bins, min, max)


def quantiles(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """quantile or nanquantile, of fractions from 0 to 1; torch checks them on a CPU alone."""

    def checked(
        x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> Tensor:
        if isinstance(q, Tensor) and q.device.type == "cpu":
            inside = ((q >= 0) & (q <= 1)).all()
            torch._assert_async(inside, f"{function.__name__}: q values must be in the range [0, 1]")
        return function(x, q, dim, keepdim, interpolation=interpolation)

    return checked
