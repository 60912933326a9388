"""How far a tensor is from its reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Deviation", "all_finite", "deviation", "difference", "error", "errors", "same"]


@dataclass(frozen=True)
class Deviation:
    """What an error is made of, so that the errors of several inputs can be pooled: `a + b` is that of both together.

    Attributes:
        squares: of the differences, summed; of integers and booleans how many elements differ. Infinite: cannot be
            compared.
        norm: of the reference's elements, squared and summed; of integers their number.
        count: of the elements that were compared.
        exact: the elements are integers or booleans.
    """

    squares: float
    norm: float
    count: int
    exact: bool = False

    def __add__(self, other: Deviation) -> Deviation:
        return Deviation(
            self.squares + other.squares, self.norm + other.norm, self.count + other.count, self.exact and other.exact
        )

    @property
    def error(self) -> float:
        """||y - r|| / ||r|| (||y|| where r is zero); of integers the fraction that differs; 0.0 of no elements."""
        if self.exact:
            return self.squares / (self.norm or 1.0)
        return math.sqrt(self.squares) / (math.sqrt(self.norm) or 1.0)


#: the square of a larger number may be infinite in float64
_SQUARED = 1e140
_UNLIKE = Deviation(math.inf, 1.0, 1)


def deviation(found: Tensor, wanted: Tensor, skip: Tensor | None = None) -> Deviation:
    """Of `found` from `wanted`, in float64.

    Infinite when the shapes differ, or when NaN and infinities are not at the same places (a value beyond the range of
    a narrower `found` dtype may be infinite there).

    Args:
        skip: a mask of the elements that are left out.
    """
    if found.shape != wanted.shape:
        return _UNLIKE
    if skip is not None and bool(skip.any()):
        found, wanted = found[~skip], wanted[~skip]
    if not wanted.is_floating_point():
        count = wanted.numel()
        return Deviation(float((found != wanted).sum()), float(count), count, exact=True)
    y, r = found.detach().double(), wanted.detach().double()
    squares, norm = _squares(y - r), _squares(r)
    if math.isfinite(squares) and norm <= _SQUARED**2:  # then every element is finite, and no square overflowed
        return Deviation(squares, norm, wanted.numel())
    odd = ~torch.isfinite(r)
    overflow = torch.isinf(y) & ~odd & (r.abs() > _largest(found.dtype))
    if bool(odd.any()) or bool(overflow.any()):
        agree = same(y[odd], r[odd]).all() and (torch.sign(y[overflow]) == torch.sign(r[overflow])).all()
        if not bool(agree):
            return _UNLIKE
        kept = ~odd & ~overflow
        y, r = y[kept], r[kept]
    if not bool(torch.isfinite(y).all()):
        return _UNLIKE
    peak = float(r.abs().max()) if r.numel() else 0.0
    if peak > _SQUARED:
        y, r = y / peak, r / peak
    return Deviation(_squares(y - r), _squares(r), wanted.numel())


def _squares(tensor: Tensor) -> float:
    flat = tensor.reshape(-1)
    return float(torch.dot(flat, flat))


def all_finite(tensor: Tensor) -> bool:
    """Whether no element is NaN or infinite. Infinities and NaN stay in a sum: one pass says so in almost all cases."""
    values = tensor.float() if tensor.element_size() == 1 else tensor  # torch sums no float8
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


def error(found: Tensor, wanted: Tensor) -> float:
    """||y - r|| / ||r|| in float64 (||y|| where r is zero); for integers and booleans the fraction that differs.

    Infinite and finite as `deviation` says. An empty tensor has error 0.
    """
    return deviation(found, wanted).error


def _largest(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).max) if dtype.is_floating_point else math.inf


def same(y: Tensor, r: Tensor) -> Tensor:
    """Of each element; NaN beside NaN, each infinity beside its own."""
    return (y == r) | (torch.isnan(y) & torch.isnan(r))


def errors(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[float]:
    """The error of each output against its float64 reference, as `error` measures it."""
    return [error(y, r) for y, r in zip(found, wanted, strict=True)]


def difference(first: Tensor, second: Tensor) -> str | None:
    """`37 of 4096000 elements, the first at [0, 3, 17]` of two runs that should agree to the bit; None: they do."""
    if first.shape != second.shape:
        return f"sizes {list(first.shape)} and {list(second.shape)}"
    places = torch.nonzero(~same(first, second))
    if not len(places):
        return None
    return f"{len(places)} of {first.numel()} elements, the first at {places[0].tolist()}"
