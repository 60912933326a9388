"""How far a tensor is from its reference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """||y - r|| / ||r|| in float64 (||y|| where r is zero); for integers and booleans the fraction that differs.

    Infinite when the shapes differ, or when NaN and infinities are not at the same places (a value beyond the range of
    a narrower `found` dtype may be infinite there). An empty tensor has error 0.
    """
    if found.shape != wanted.shape:
        return math.inf
    if wanted.numel() == 0:
        return 0.0
    if not wanted.is_floating_point():
        return float((found != wanted).double().mean())
    y, r = found.detach().double(), wanted.detach().double()
    odd = ~torch.isfinite(r)
    overflow = torch.isinf(y) & ~odd & (r.abs() > _largest(found.dtype))
    if bool(odd.any()) or bool(overflow.any()):
        if not _same_odd(y[odd], r[odd]) or not bool((torch.sign(y[overflow]) == torch.sign(r[overflow])).all()):
            return math.inf
        kept = ~odd & ~overflow
        y, r = y[kept], r[kept]
    if not bool(torch.isfinite(y).all()):
        return math.inf
    norm = float(torch.linalg.vector_norm(r))
    return float(torch.linalg.vector_norm(y - r)) / (norm or 1.0)


def _largest(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).max) if dtype.is_floating_point else math.inf


def _same_odd(y: torch.Tensor, r: torch.Tensor) -> bool:
    return bool(_same(y, r).all())


def _same(y: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """Of each element; NaN beside NaN, each infinity beside its own."""
    return (y == r) | (torch.isnan(y) & torch.isnan(r))


def errors(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> list[float]:
    return [error(y, r) for y, r in zip(found, wanted, strict=True)]


def eager_error(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> list[float]:
    """The errors of eager torch's outputs (`reference.eager`) from the reference: the measure for a package's own."""
    return errors(found, wanted)


def difference(first: torch.Tensor, second: torch.Tensor) -> str | None:
    """`37 of 4096000 elements, the first at [0, 3, 17]` of two runs that should agree to the bit; None: they do."""
    if first.shape != second.shape:
        return f"sizes {list(first.shape)} and {list(second.shape)}"
    places = torch.nonzero(~_same(first, second))
    if not len(places):
        return None
    return f"{len(places)} of {first.numel()} elements, the first at {places[0].tolist()}"
