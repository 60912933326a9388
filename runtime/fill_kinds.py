"""Tensors from a seed that keep a property: in order, one-hot, symmetric, probabilities, within bounds.

Everything is exact integer arithmetic, sorting, or one rounded operation of float64 per element, so that every machine
and every version of numpy makes the same bits, like generator.py, which calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KINDS", "duplicated", "shaped", "within"]

Array = NDArray[Any]


def within(values: Array, bounds: Sequence[float | None]) -> Array:
    """Floats beyond a bound are mirrored at it, and cut off where they are beyond the other one then."""
    low, high = bounds
    if low is not None:
        values = np.where(values < low, 2 * low - values, values)
    if high is not None:
        values = np.where(values > high, 2 * high - values, values)
        values = values if low is None else np.maximum(values, low)
    return values


def duplicated(values: Array, words: Array, low: int, high: int) -> Array:
    """Integers with duplicates and with both ends of their range: about half of them."""
    flat, choice = values.reshape(-1).copy(), (words.reshape(-1) >> np.uint64(59)).astype(np.int64)
    pool = flat[: min(8, flat.size)].copy()
    if flat.size:
        again = pool[(words.reshape(-1) % np.uint64(pool.size)).astype(np.int64)]
        flat = np.where(choice < 10, again, flat)
    flat[choice >= 30], flat[(choice >= 28) & (choice < 30)] = low, high
    if flat.size >= 4:
        flat[flat.size // 2], flat[1], flat[-1] = flat[0], low, high
    return flat.reshape(values.shape)


def _ascending(values: Array, words: Array) -> Array:
    return np.sort(values, axis=-1)


def _descending(values: Array, words: Array) -> Array:
    return np.sort(values, axis=-1)[..., ::-1].copy()


def _permutation(values: Array, words: Array) -> Array:
    return np.argsort(words, axis=-1, kind="stable").astype(values.dtype)


def _one_hot(values: Array, words: Array) -> Array:
    size = values.shape[-1]
    hot = (words[..., :1] % np.uint64(max(size, 1))).astype(np.int64)
    return (np.arange(size) == hot).astype(values.dtype)


def _bits(values: Array, words: Array) -> Array:
    return (words >> np.uint64(63)).astype(values.dtype)


def _probabilities(values: Array, words: Array) -> Array:
    weights = (words >> np.uint64(48)).astype(np.int64) + 1
    return weights / weights.sum(axis=-1, keepdims=True)


def _symmetric(values: Array, words: Array) -> Array:
    return np.tril(values) + np.swapaxes(np.tril(values, -1), -1, -2)


def _lower(values: Array, words: Array) -> Array:
    return np.tril(values)


def _upper(values: Array, words: Array) -> Array:
    return np.triu(values)


#: name -> (values as drawn, their random words) to values that have the property, along the last dimensions
KINDS: Mapping[str, Callable[[Array, Array], Array]] = {
    "ascending": _ascending,
    "descending": _descending,
    "permutation": _permutation,
    "one-hot": _one_hot,
    "bits": _bits,
    "probabilities": _probabilities,
    "symmetric": _symmetric,
    "lower": _lower,
    "upper": _upper,
}


def shaped(values: Array, words: Array, kind: str, diagonal: float | None = None) -> Array:
    """Values with the property `kind`.

    Args:
        values: as drawn, floats in float64.
        words: the random 64 bits that they were drawn from.
        kind: a name of KINDS, or "rising" (integers, each larger than the one before).
        diagonal: of matrices: added to the diagonal's magnitudes, which become larger than the sum of the others in
            their row, so that a symmetric matrix is positive definite and a triangular one well conditioned.
    """
    if kind == "rising":
        return _rising(values)
    values = KINDS[kind](values, words)
    if diagonal is not None:
        n = values.shape[-1]
        at = np.arange(n)
        values = values.copy()
        values[..., at, at] = np.abs(values[..., at, at]) + (diagonal + n * _largest(values))
    return values


def _largest(values: Array) -> float:
    return float(np.abs(values).max()) if values.size else 0.0


def _rising(values: Array) -> Array:
    """From what is drawn between `low` and `high` - (n - 1): in order, and each by its place larger."""
    return np.sort(values, axis=-1) + np.arange(values.shape[-1], dtype=values.dtype)
