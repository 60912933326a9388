"""The algebra that passes of the schedule stand on: identities of sums, each with both of its sides.

A law is exact over the real numbers; in floats its sides differ by roundings. `tests/ir/test_laws.py` holds each in
float64 on random values, and `tests/schedule/test_pass_values.py` holds the passes that name one to the values of whole
programs.

    law             what it allows                                   who uses it
    --------------  -----------------------------------------------  ------------------------------------------------
    chan            variances of parts are joined                    schedule/algebra/blocked_variance.py, welford.py
    online_softmax  sums of exponentials of parts are joined         schedule/algebra/online_softmax.py
    split_k         products are added up by parts of k              schedule/algebra/split_k_cpu.py, split_k_gpu.py
    winograd        a convolution is fewer products of points        ir/layouts.py, lower/contract/conv_algorithm.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class Deviations(NamedTuple):
    """Of some values: how many, their mean, and the sum of the squared deviations from it."""

    number: int
    mean: float
    squares: float


def deviations(x: Array) -> Deviations:
    """The statistics of x [n], n > 0, from their definition."""
    mean = float(x.mean())
    return Deviations(len(x), mean, float(((x - mean) ** 2).sum()))


def chan(a: Deviations, b: Deviations) -> Deviations:
    """The statistics of all values from those of two parts (Chan, Golub, LeVeque 1979; Welford 1962 where b is one).

    With d = mean(b) - mean(a) and n = |a| + |b|:

        mean(a + b) = mean(a) + d |b| / n
        squares(a + b) = squares(a) + squares(b) + d^2 |a| |b| / n
    """
    count, apart = a.number + b.number, b.mean - a.mean
    squares = a.squares + b.squares + apart * apart * a.number * b.number / count
    return Deviations(count, a.mean + apart * b.number / count, squares)


class Exponentials(NamedTuple):
    """Of some values: the largest, and the sum of exp(x - largest)."""

    largest: float
    total: float


def exponentials(x: Array) -> Exponentials:
    """The sum of x [n], n > 0, from its definition."""
    largest = float(x.max())
    return Exponentials(largest, float(np.exp(x - largest).sum()))


def online_softmax(a: Exponentials, b: Exponentials) -> Exponentials:
    """The sum of all exponentials from those of two parts (Milakov, Gimelshein 2018).

    sum(a + b) = sum(a) exp(largest(a) - high) + sum(b) exp(largest(b) - high),  high = max(largest(a), largest(b))
    """
    high = max(a.largest, b.largest)
    return Exponentials(high, a.total * np.exp(a.largest - high) + b.total * np.exp(b.largest - high))


def split_k(a: Array, b: Array, parts: int) -> Array:
    """a [m, k] times b [k, n] as a sum over `parts` parts of k, which divide it.

    sum over k:K of a[m, k] b[k, n] = sum over s:S of (sum over k:K/S of a[m, s K/S + k] b[s K/S + k, n])
    """
    step = a.shape[1] // parts
    cuts = (slice(s * step, (s + 1) * step) for s in range(parts))
    return np.asarray(sum(a[:, cut] @ b[cut] for cut in cuts))


def winograd(g: Sequence[Sequence[float]], outputs: int, taps: Array, x: Array) -> Array:
    """`outputs` results of a convolution of stride 1 by products of points (Winograd 1980; Lavin, Gray 2015).

        sum over t:3 of x[j + t] taps[t]
            = sum over p of A[p, j] (sum over t of G[p, t] taps[t]) (sum over i of B[p, i] x[i])

    x: [outputs + 2]. A row of G is a multiple of (1, c, c^2), so that it gives the value of a polynomial at c, or it is
    (0, 0, 1) for infinity; then A[p] = (1, c, c^2, ...). The sides are equal for all x and taps where

        sum over p of A[p, j] G[p, t] B[p, i] = 1 if i = j + t, else 0

    These are more equations than B has numbers. B solves them where G has the points of `outputs` + 2 polynomials.
    """
    points = np.asarray(g, np.float64)
    infinite = points[:, :1] == 0
    place = points[:, 1:2] / np.where(infinite, 1.0, points[:, :1])
    j = np.arange(outputs)
    powers = np.where(infinite, j == outputs - 1, place**j)
    equations = np.einsum("pj,pt->jtp", powers, points).reshape(-1, len(points))
    wanted = (j[:, None, None] + np.arange(3)[:, None] == np.arange(outputs + 2)).reshape(len(equations), -1)
    inputs = np.linalg.lstsq(equations, wanted.astype(np.float64), rcond=None)[0]
    return np.asarray(powers.T @ ((points @ taps) * (inputs @ x)))


def winograd_of_two(g: Sequence[Sequence[float]], taps: Array, x: Array) -> Array:
    """Two results of a convolution of stride 2 by five products instead of six. x: [5]; G gives g0, g1, g2, g0 + g2.

    x0 g0 + x1 g1 + x2 g2 = (x0 - x2) g0 + x1 g1 + x2 (g0 + g2)
    x2 g0 + x3 g1 + x4 g2 = (x4 - x2) g2 + x3 g1 + x2 (g0 + g2)
    """
    first, middle, last, both = np.asarray(g, np.float64) @ taps
    shared = x[2] * both
    return np.array([(x[0] - x[2]) * first + x[1] * middle + shared, (x[4] - x[2]) * last + x[3] * middle + shared])
