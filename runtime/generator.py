"""Tensors from a seed, equal to the bit on every machine and with every version of numpy.

Element i is a pure function of (seed, i): SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
Generators, OOPSLA 2014) applied to a counter, in exact integer arithmetic. A float is the sum of four 16-bit uniforms
(Irwin-Hall, a bell curve that ends at 3.46 standard deviations), scaled by one multiplication and one addition in
float64 and rounded once to its dtype. No function of a maths library takes part, so there is nothing that could differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import narrow_bfloat

__all__ = ["Fill", "example_fill", "fill", "fill_tensor"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 1 << 16  # elements at a time: temporaries stay in the second-level cache
_SUM_MEAN = 2 * 65535
_SUM_STD = math.sqrt(4 * (65536**2 - 1) / 12)
_NUMPY_DTYPES = {
    "bool": "?", "u8": "u1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8",
}  # fmt: skip

_COMPLEX = {"c64": ("f32", "c8"), "c128": ("f64", "c16")}  # either part is filled as a float


class Fill(NamedTuple):
    """How a tensor is filled: a seed, and a float's (mean, standard deviation) or an integer's (lowest, highest).

    With neither, floats have mean 0 and deviation 1, integers are 0 or 1.

    Attributes:
        kind: the property that the tensor has (fill_kinds.py); "": none.
        bounds: of floats: what they are not below and not above.
        diagonal: of matrices: what is added to the diagonal, which outweighs the rest of its row.
        edges: integers have duplicates, and both ends of their range.
    """

    seed: int
    spread: tuple[float, float] | None = None
    limits: tuple[int, int] | None = None
    kind: str = ""
    bounds: tuple[float | None, float | None] | None = None
    diagonal: float | None = None
    edges: bool = False

    @property
    def plain(self) -> bool:
        """Whether seed, spread and limits say all: readers of version 1 of the certificate know no more."""
        return self == Fill(self.seed, self.spread, self.limits)


def fill_tensor(dtype: str, shape: Sequence[int], how: Fill) -> NDArray[np.generic]:
    """`fill` with its arguments in one value, and the properties that only a Fill has."""
    if how.plain:
        return fill(dtype, shape, how.seed, spread=how.spread, limits=how.limits)
    from .fill_kinds import duplicated, shaped, within

    integer = _is_integer(dtype)
    words = fill("i64", shape, how.seed, limits=(-(2**63), 2**63 - 1)).view(np.uint64)
    if integer:
        low, high = how.limits or (0, 1)
        room = max(low, high - (shape[-1] - 1)) if how.kind == "rising" and shape else high
        values = fill("i64", shape, how.seed, limits=(low, room))
        if how.edges and room > low:
            values = duplicated(values, words, low, room)
        values = shaped(values, words, how.kind, how.diagonal) if how.kind else values
        if how.kind in ("ascending", "descending") and shape and shape[-1] > 1:
            first, last = (low, high) if how.kind == "ascending" else (high, low)
            values[..., 0], values[..., -1] = first, last
        values = np.minimum(values, high) if how.kind == "rising" else values
        return values.astype(_NUMPY_DTYPES[dtype])
    values = fill("f64", shape, how.seed, spread=how.spread)
    values = within(values, how.bounds) if how.bounds else values
    values = shaped(values, words, how.kind, how.diagonal) if how.kind else values
    return narrow_bfloat(values) if dtype == "bf16" else values.astype(_NUMPY_DTYPES[dtype])


def _is_integer(dtype: str) -> bool:
    return dtype[0] in "bui" and dtype != "bf16"


def fill(
    dtype: str,
    shape: Sequence[int],
    seed: int,
    *,
    spread: tuple[float, float] | None = None,
    limits: tuple[int, int] | None = None,
) -> NDArray[np.generic]:
    """A dense array of the manifest's dtype. bf16, which numpy lacks, comes as its bits in uint16.

    Args:
        dtype: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128.
        shape: sizes.
        seed: any integer; different seeds give unrelated values.
        spread: mean and standard deviation of a float dtype.
        limits: lowest and highest value of an integer dtype, both included.
    """
    if dtype in _COMPLEX:
        part, whole = _COMPLEX[dtype]
        return fill(part, (*shape, 2), seed, spread=spread, limits=limits).view(whole).reshape(tuple(shape))
    integer = _is_integer(dtype)
    if (spread is not None and integer) or (limits is not None and not integer):
        raise ValueError(f"{dtype} takes {'limits' if integer else 'a spread'}")
    count = math.prod(shape)
    flat = np.empty(count, np.uint16 if dtype == "bf16" else _NUMPY_DTYPES[dtype])
    start = _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64))
    for begin in range(0, count, _CHUNK):
        end = min(count, begin + _CHUNK)
        words = _mix(np.arange(begin + 1, end + 1, dtype=np.uint64) * _GOLDEN + start)
        if integer:
            flat[begin:end] = _integers(words, *(limits or (0, 1)))
        else:
            values = _bell(words, *(spread or (0.0, 1.0)))
            flat[begin:end] = narrow_bfloat(values) if dtype == "bf16" else values
    return flat.reshape(tuple(shape))


def example_fill(values: NDArray[np.generic], seed: int) -> Fill:
    """The Fill that resembles an example: its mean and deviation, or its lowest and highest integer."""
    if values.dtype.kind in "bui":
        return Fill(seed, limits=(int(values.min()), int(values.max())) if values.size else (0, 0))
    if values.dtype.kind == "c":
        values = np.stack([values.real, values.imag])
    finite = values[np.isfinite(values)].astype(np.float64)
    spread = (float(finite.mean()), float(finite.std())) if finite.size else (0.0, 1.0)
    return Fill(seed, spread=spread)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function; arithmetic modulo 2**64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _integers(words: NDArray[np.uint64], low: int, high: int) -> NDArray[np.int64]:
    if high < low:
        raise ValueError(f"the limits {low} to {high} are empty")
    span = high - low + 1
    offsets = words if span > 0xFFFFFFFFFFFFFFFF else words % np.uint64(span)
    return (offsets + np.uint64(low & 0xFFFFFFFFFFFFFFFF)).view(np.int64)


def _bell(words: NDArray[np.uint64], mean: float, deviation: float) -> NDArray[np.float64]:
    parts = words.view(np.uint16).reshape(-1, 4)  # the sum does not depend on the order of the parts
    total = parts.sum(axis=1, dtype=np.int64) - _SUM_MEAN
    return total.astype(np.float64) * (deviation / _SUM_STD) + mean
