"""References of random numbers on CPUs: numpy's Mersenne Twister, and torch's way of making numbers of its words.

A generator is 632 words of memory: 624 of the twister, how many of them are used, whether half a pair of normal numbers
is left, and that half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .numbers import Array, CallFails

WORDS, STATE = 624, 632


class _Twister:
    """The generator while a routine draws from it."""

    def __init__(self, state: Array) -> None:
        self.bits = np.random.MT19937()
        key = state[:WORDS].astype(np.int32).view(np.uint32)
        self.bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": int(state[WORDS])}}
        self.cached = bool(state[WORDS + 1])
        self.normal = float(state[WORDS + 2 : WORDS + 4].astype(np.int32).view(np.float64)[0])

    def state(self) -> Array:
        held, now = np.zeros(STATE, np.int32), self.bits.state["state"]
        held[:WORDS] = np.asarray(now["key"], np.uint32).view(np.int32)
        held[WORDS], held[WORDS + 1] = now["pos"], self.cached
        held[WORDS + 2 : WORDS + 4] = np.asarray([self.normal]).view(np.int32)
        return held

    def words(self, n: int, wide: bool = False) -> Array:
        """Of 32 bits, or of 64."""
        drawn = np.asarray(self.bits.random_raw(2 * n if wide else n), np.uint64).reshape(-1)
        return drawn[0::2] << np.uint64(32) | drawn[1::2] if wide else drawn

    def fractions(self, n: int, wide: bool = True) -> Array:
        """In [0, 1), of 53 bits, or of 24."""
        bits = 53 if wide else 24
        return (self.words(n, wide) & np.uint64((1 << bits) - 1)) * 2.0**-bits

    def one_normal(self) -> float:
        if self.cached:
            self.cached = False
            return self.normal
        turn, radius = self.fractions(2)
        radius = np.sqrt(-2 * np.log1p(-radius))
        self.normal, self.cached = float(radius * np.sin(2 * np.pi * turn)), True
        return float(radius * np.cos(2 * np.pi * turn))


def _seed(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    key = np.random.RandomState(sizes[0] & 0xFFFFFFFF).get_state(legacy=False)["state"]["key"]
    held = np.zeros(STATE, np.int32)
    held[:WORDS], held[WORDS] = np.asarray(key, np.uint32).view(np.int32), WORDS
    return (held,)


def _words(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    twister = _Twister(given[0])
    words = twister.words(sizes[0], bool(sizes[1])).view(np.int64)
    return words, twister.state()


def _normals(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    twister = _Twister(given[0])
    values = np.asarray([twister.one_normal() for _ in range(sizes[0])], np.float64)
    return values, twister.state()


def _fill(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """From 16 numbers on eight pairs at a time; the last 16 of another number are drawn again."""
    n, wide = sizes
    if n < 16:
        return _normals(given, sizes)
    twister = _Twister(given[0])
    values = twister.fractions(n, bool(wide))
    for begin in range(0, n - 15, 16):
        values[begin : begin + 16] = _pairs(values[begin : begin + 16])
    if n % 16:
        values[-16:] = _pairs(twister.fractions(16, bool(wide)))
    return values, twister.state()


def _pairs(u: Array) -> Array:
    radius, turn = np.sqrt(-2 * np.log(1 - u[:8])), 2 * np.pi * u[8:]
    return np.concatenate((radius * np.cos(turn), radius * np.sin(turn)))


def _permutation(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    n = sizes[0]
    twister, values = _Twister(given[0]), np.arange(n)
    for i, word in enumerate(twister.words(max(n - 1, 0), n >= 0xFFFFFFFF // 20)):
        other = i + int(word) % (n - i)
        values[[i, other]] = values[[other, i]]
    return values, twister.state()


def _weighted_places(given: Sequence[Array], sizes: Sequence[int]) -> Sequence[Array]:
    """A place in k weights for each word, by their running sums."""
    k, count = sizes
    weights, words = given[0][:k], given[1][:count].view(np.uint64)
    if not ((weights >= 0) & np.isfinite(weights)).all():
        raise CallFails("weights of multinomial must be numbers of at least 0")
    sums = np.cumsum(weights)
    if not (len(sums) and sums[-1] > 0):
        raise CallFails("weights of multinomial must not all be 0")
    sums = sums / sums[-1]
    sums[-1] = 1
    drawn = (words & np.uint64((1 << 53) - 1)) * 2.0**-53
    return (np.minimum(np.searchsorted(sums, drawn), k - 1),)


GENERATORS = {
    "mersenne_seed": _seed,
    "mersenne_words": _words,
    "mersenne_normals": _normals,
    "mersenne_fill": _fill,
    "mersenne_permutation": _permutation,
    "weighted_places": _weighted_places,
}
