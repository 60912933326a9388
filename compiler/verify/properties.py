"""Which properties of an example input are evident, and are kept by the inputs that verification draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...runtime.generator import Fill, example_fill

__all__ = ["evident_fill"]

Array = NDArray[Any]

#: what mirrors nothing: draws end at so many deviations from the mean (generator.py)
REACH = 3.4642
#: rows of random elements are in order by chance as seldom as this
CHANCE = 0.05


def evident_fill(values: Array, seed: int, ordered: bool = False) -> Fill:
    """How a tensor like the example is drawn.

    Args:
        values: the example.
        seed: of the draw.
        ordered: the model asks for elements in ascending order.
    """
    fill = example_fill(values, seed)
    if not values.size or values.dtype.kind == "c":
        return fill
    if values.dtype.kind in "bui":
        return _integers(values.astype(np.int64), fill, ordered)
    with np.errstate(invalid="ignore"):  # examples may hold NaN
        return _floats(values.astype(np.float64), fill, ordered)


# -- integers and booleans --------------------------------------------------------------------------------------------


def _integers(values: Array, fill: Fill, ordered: bool) -> Fill:
    assert fill.limits is not None
    low, high = fill.limits
    if low == high or not values.ndim:
        return fill
    if _triangle(values):
        return _triangular(values, fill)
    if (low, high) == (0, 1) and values.shape[-1] > 2 and _is_one_hot(values):
        return fill._replace(kind="one-hot")
    if _is_permutation(values):
        return fill._replace(kind="permutation")
    if _in_order(values, np.greater):
        return fill._replace(kind="rising")
    if ordered or _in_order(values, np.greater_equal):
        return fill._replace(kind="ascending")
    if _in_order(values, np.less_equal):
        return fill._replace(kind="descending")
    if _is_square(values, 4) and _equal(values, np.swapaxes(values, -1, -2)):
        return fill._replace(kind="symmetric")
    return fill


def _is_permutation(values: Array) -> bool:
    size = values.shape[-1]
    places = np.arange(size)
    return size > 2 and bool((np.sort(values) == places).all()) and not bool((values == places).all())


def _triangular(values: Array, fill: Fill) -> Fill:
    kind = _triangle(values)
    if not kind:
        return fill
    kept = values[..., *(np.tril_indices if kind == "lower" else np.triu_indices)(values.shape[-1])]
    return example_fill(kept, fill.seed)._replace(kind=kind)


# -- floats -----------------------------------------------------------------------------------------------------------


def _floats(values: Array, fill: Fill, ordered: bool) -> Fill:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return fill
    if bool((finite == finite.flat[0]).all()):
        mean = float(finite.flat[0])
        spread = (mean, abs(mean) / 8 or 0.125)  # a constant, most likely in the place of other values
        return fill._replace(spread=spread, kind="ascending") if ordered else fill._replace(spread=spread)
    if finite.size < values.size:
        return fill
    identity = _is_square(values, 2) and bool((values == np.eye(values.shape[-1])).all())
    if bool(((values == 0) | (values == 1)).all()) and not identity:
        hot = values.ndim and values.shape[-1] > 1 and _is_one_hot(values)
        return fill._replace(kind="one-hot" if hot else "ascending" if ordered else "bits")
    if values.ndim and values.shape[-1] > 1 and not identity and _is_distribution(values):
        return fill._replace(kind="probabilities")
    if _is_square(values, 2) and (matrix := _matrix(values, fill)) is not None:
        return matrix
    fill = fill._replace(bounds=_bounds(values, fill))
    if ordered or _in_order(values, np.greater_equal):
        return fill._replace(kind="ascending")
    return fill._replace(kind="descending") if _in_order(values, np.less_equal) else fill


def _matrix(values: Array, fill: Fill) -> Fill | None:
    """Symmetric, positive definite and triangular matrices; None: neither."""
    size = values.shape[-1]
    diagonal = np.diagonal(values, axis1=-2, axis2=-1)
    outweighed = float(diagonal.min()) if bool((diagonal > 0).all()) else None
    if _equal(values, np.swapaxes(values, -1, -2)):
        definite = outweighed is not None and bool((np.linalg.eigvalsh(values) > 0).all())
        rest = values[..., ~np.eye(size, dtype=bool)]
        mean, deviation = example_fill(rest, fill.seed).spread or (0.0, 0.0)
        if definite:
            spread = (mean, deviation or 0.125)
            return fill._replace(spread=spread, kind="symmetric", diagonal=outweighed)
        return fill._replace(kind="symmetric")
    drawn = _triangular(values, fill)
    return drawn._replace(diagonal=outweighed) if drawn.kind else None


def _bounds(values: Array, fill: Fill) -> tuple[float | None, float | None] | None:
    """What the example stays within, of which a draw with its mean and deviation could come out."""
    assert fill.spread is not None
    mean, deviation = fill.spread
    least, most = float(values.min()), float(values.max())
    low, high = None, None
    if least >= 0:
        low, high = least / 2, 1.0 if most <= 1 else None
    elif least >= -1 and most <= 1 and values.size >= 8:
        low, high = -1.0, 1.0
    elif most <= 0:
        high = most / 2
    low = low if low is not None and mean - REACH * deviation < low else None
    high = high if high is not None and mean + REACH * deviation > high else None
    return None if low is None and high is None else (low, high)


# -- both -------------------------------------------------------------------------------------------------------------


def _is_one_hot(values: Array) -> bool:
    return bool((values.sum(-1) == 1).all())


def _is_distribution(values: Array) -> bool:
    return bool((values >= 0).all()) and bool((np.abs(values.sum(-1) - 1) < 1e-3).all())


def _is_square(values: Array, least: int) -> bool:
    return values.ndim >= 2 and values.shape[-1] == values.shape[-2] >= least


def _equal(a: Array, b: Array) -> bool:
    return bool((a == b).all())


def _triangle(values: Array) -> str:
    """ "lower", "upper" or ""; diagonal matrices and those of one element are neither."""
    if not _is_square(values, 3):
        return ""
    lower, upper = _equal(values, np.tril(values)), _equal(values, np.triu(values))
    return "" if lower == upper else "lower" if lower else "upper"


def _in_order(values: Array, follows: Callable[[Array, Array], Array]) -> bool:
    """Whether the rows are in order, are not constant, and are so by chance hardly ever."""
    size = values.shape[-1] if values.ndim else 0
    if size < 3:
        return False
    rows = values.size // size
    by_chance = math.exp(-rows * math.lgamma(size + 1))
    first, second = values[..., :-1], values[..., 1:]
    return by_chance < CHANCE and bool(follows(second, first).all()) and bool((first != second).any())
