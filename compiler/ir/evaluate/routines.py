"""Routines of one block each, by a table of references. A reference takes the flat memory from where each of its inputs
begins on, and the sizes; it gives the elements of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..routines import Routine
from .factorisations import FACTORISATIONS
from .generator import GENERATORS
from .memory import Memory
from .numbers import Array, CallFails
from .regions import REGIONS

Reference = Callable[[Sequence[Array], Sequence[int]], Sequence[Array]]


def run_routine(node: Routine, memory: Memory) -> None:
    reference = ROUTINES[node.function]
    sizes = [n.evaluate(memory.sizes) for n in node.sizes]
    strides = [[b.stride.evaluate(memory.sizes) for b in side] for side in (node.inputs, node.outputs)]
    for block in range(node.count.evaluate(memory.sizes)):
        pairs = zip(node.inputs, strides[0], strict=True)
        given = [memory.of(b.buffer).values[block * stride :] for b, stride in pairs]
        with np.errstate(all="ignore"):
            results = reference(given, sizes)
        for b, stride, values in zip(node.outputs, strides[1], results, strict=True):
            memory.put(b.buffer, block * stride, np.asarray(values))


# order ---------------------------------------------------------------------------------------------------------------
def _sort(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """The first k of n elements in order: stable, NaN as the largest."""
    import torch

    n, k, descending = sizes
    values, places = torch.sort(torch.from_numpy(given[0][:n].copy()), stable=True, descending=bool(descending))
    return values.numpy()[:k], places.numpy()[:k]


def _mode(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """The most frequent element, the smallest of several, and its last place; a NaN equals nothing."""
    x = given[0][: sizes[0]]
    if not len(x):
        return x, np.zeros(0, np.int64)
    order = np.argsort(x, kind="stable")
    ends = np.flatnonzero(np.append(x[order][1:] != x[order][:-1], True))
    runs = np.diff(ends, prepend=-1)
    place = order[ends[np.argmax(runs)]]
    return np.asarray([x[place]]), np.asarray([place])


def _search(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """How many of m sorted edges lie below each of n values, or at it; edges that are not sorted are halved alike."""
    m, n, right = sizes
    edges, values = given[0][:m], given[1][:n]
    start, length = np.zeros(n, np.int64), np.full(n, m, np.int64)
    while (length > 0).any():
        half = length >> 1
        edge = edges[np.minimum(start + half, m - 1)]
        below = (~(edge > values) if right else ~(edge >= values)) & (length > 0)
        start = np.where(below, start + half + 1, start)
        length = np.where(below, length - half - 1, half)
    return (start,)


def _row_order(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """The rows of a matrix [n, m] in lexicographic order, stable."""
    n, m = sizes
    x = given[0][: n * m].reshape(n, m)
    return (np.lexsort([x[:, j] for j in reversed(range(m))]) if m else np.arange(n),)


# places --------------------------------------------------------------------------------------------------------------
def _nonzero_indices(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    found = np.flatnonzero(given[0][: sizes[0]])
    return found, np.asarray([len(found)])


def _true_count(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    return (np.asarray([np.count_nonzero(given[0][: sizes[0]])]),)


def _true_elements(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    n, count = sizes
    return (given[0][:n][given[1][:n].astype(bool)][:count],)


def _repeats_total(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    repeats = given[0][: sizes[0]]
    if (repeats < 0).any():
        raise CallFails("repeats of repeat_interleave must not be negative")
    return (np.asarray([repeats.sum()]),)


def _repeated_places(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    n, total = sizes
    places = np.repeat(np.arange(n), np.maximum(given[0][:n], 0))[:total]
    return (np.pad(places, (0, total - len(places))),)


def _ends_before(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """For each number from 0 on, how many of n sorted ends are not larger."""
    n, total = sizes
    return (np.searchsorted(given[0][:n], np.arange(total), side="right"),)


# sequences -----------------------------------------------------------------------------------------------------------
def _filter(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """out[t + order - 1] = x[t] - sum over k of a[k] * out[t + k]"""
    n, order = sizes
    x, a, before = given
    out = before[: n + order - 1].copy()
    for t in range(n):
        out[t + order - 1] = x[t] - (a[:order] * out[t : t + order]).sum() if order else x[t]
    return (out,)


def _ctc(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """Minus the log probability of a sequence's labels, state by state (Graves et al., 2006)."""
    probs, labels, first, lengths = given
    steps, classes, total, blank = sizes
    length, count, begin = int(lengths[0]), int(lengths[1]), int(first[0])
    if not (0 <= length <= steps and 0 <= count <= total - begin and 0 <= begin <= total):
        raise CallFails("a length given to ctc_loss is negative, or larger than its tensor")
    states = np.full(2 * count + 1, blank)
    states[1::2] = labels[begin : begin + count]
    if ((states < 0) | (states >= classes)).any():
        raise CallFails("a label given to ctc_loss is not a class")
    skips = np.concatenate(([False, False], states[2:] != states[:-2]))[: len(states)]
    row = np.full(len(states), -np.inf)
    for t, p in enumerate(probs[: length * classes].reshape(length, classes)):
        if t == 0:
            row[:2] = p[states[:2]]
            continue
        padded = np.concatenate(([-np.inf, -np.inf], row))
        past = np.where(skips, padded[:-2], -np.inf)
        row = np.logaddexp(np.logaddexp(row, padded[1:-1]), past) + p[states]
    if length == 0:
        return (np.asarray([0.0 if count == 0 else np.inf]),)
    return (np.asarray([-np.logaddexp(row[-1], row[-2] if count else -np.inf)]),)


# Fourier transforms --------------------------------------------------------------------------------------------------
def _fft(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    n = sizes[0]
    made = np.fft.fft(given[0][:n] + 1j * given[1][:n]) if n else np.zeros(0, complex)
    return made.real, made.imag


def _rfft(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    made = np.fft.rfft(given[0][: sizes[0]])
    return made.real, made.imag


def _irfft(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    n = sizes[0]
    half = n // 2 + 1
    return (np.fft.irfft(given[0][:half] + 1j * given[1][:half], n) * n,)


ROUTINES: Mapping[str, Reference] = {
    "sort": _sort,
    "mode": _mode,
    "search": _search,
    "row_order": _row_order,
    "nonzero_indices": _nonzero_indices,
    "true_count": _true_count,
    "true_elements": _true_elements,
    "repeats_total": _repeats_total,
    "repeated_places": _repeated_places,
    "ends_before": _ends_before,
    "recursive_filter": _filter,
    "ctc": _ctc,
    "fft": _fft,
    "rfft": _rfft,
    "irfft": _irfft,
    "fft_table": lambda given, sizes: (np.zeros(0),),  # the references of transforms need none
    "keep": lambda given, sizes: (np.ones(1, bool),),  # what stands for readers while a piece is scheduled
    **FACTORISATIONS,
    **GENERATORS,
    **REGIONS,
}
