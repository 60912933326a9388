"""Functions of torch with out= that torch.export cannot make functional: their results, copied to the tensors of out.

torch.linalg.cholesky(x, out=y)  ->  y.copy_(torch.linalg.cholesky(x))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: those whose out= form checks for errors in an order that torch keeps by tokens, or has no form for an export
WITH_OUT = frozenset(
    (
        torch.linalg.cholesky,
        torch.linalg.inv,
        torch.linalg.ldl_factor,
        torch.linalg.lstsq,
        torch.linalg.lu_factor,
        torch.linalg.solve,
        torch.cholesky,
        torch.histc,
        torch.inverse,
        torch.nanquantile,
        torch.quantile,
    )
)


def copied(results: Any, out: Any) -> bool:
    """Copies results to the tensors of out=; False where a shape or a dtype differs, of which torch makes something
    else."""
    given, found = _tensors(out), _tensors(results)
    if [(x.shape, x.dtype) for x in given] != [(x.shape, x.dtype) for x in found]:
        return False
    for target, value in zip(given, found, strict=True):
        target.copy_(value)
    return True


def _tensors(values: Any) -> Sequence[Tensor]:
    return [values] if isinstance(values, Tensor) else list(values)
