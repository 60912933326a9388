"""Functions of torch with out= that torch.export cannot make functional: their results, copied to the tensors of out.

torch.linalg.cholesky(x, out=y)  ->  y.copy_(torch.linalg.cholesky(x))
torch.nonzero(x, out=y)          ->  y.set_(torch.nonzero(x)), as torch resizes y to what it finds
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
        torch.masked_select,
        torch.nanquantile,
        torch.nonzero,
        torch.quantile,
    )
)
#: those whose results have sizes that only the run finds
_RESIZING = frozenset((torch.masked_select, torch.nonzero))


def copied(function: Any, results: Any, out: Any) -> bool:
    """Copies results to the tensors of out=; False where a shape or a dtype differs, of which torch makes something
    else."""
    given, found = _tensors(out), _tensors(results)
    if function in _RESIZING:
        if out.dtype != results.dtype:
            raise RuntimeError(f"out= is a tensor of {out.dtype}, the result one of {results.dtype}")
        out.set_(results)
        return True
    if [(x.shape, x.dtype) for x in given] != [(x.shape, x.dtype) for x in found]:
        return False
    for target, value in zip(given, found, strict=True):
        target.copy_(value)
    return True


def _tensors(values: Any) -> Sequence[Tensor]:
    return [values] if isinstance(values, Tensor) else list(values)
