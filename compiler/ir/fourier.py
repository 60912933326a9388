"""Tables for the transforms of kernels/linalg/fft.h: roots of unity, and what Bluestein's algorithm needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

#: factors that the transform splits by; a size with another one goes by Bluestein's algorithm
RADICES = (4, 2, 3, 5, 7, 11, 13)
#: those of a GPU
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)


def is_smooth(n: int, radices: Sequence[int] = RADICES) -> bool:
    """Whether n is a product of the radices."""
    for radix in radices:
        while n % radix == 0 and n > 1:
            n //= radix
    return n <= 1


def padded(n: int) -> int:
    """The power of two of the convolution in Bluestein's algorithm: 2 n - 1 at least."""
    return 1 << (2 * n - 2).bit_length() if n > 1 else 1


def table(kind: str, n: int) -> NDArray[np.float64]:
    """What the routine `kind` ("fft" or "rfft", which irfft shares) of size n reads, flat.

    fft    the n roots exp(-2 pi i k / n), real parts then imaginary parts; for a size that is not smooth instead the
           chirp exp(-pi i k^2 / n), the transform of its conjugate (of size m, divided by m), the m roots, each so
    rfft   for an even n the table of n / 2 and the first n / 2 + 1 of the n roots; for an odd n the table of n
    """
    if kind == "rfft" and n % 2 == 0 and n > 0:
        return np.concatenate([table("fft", n // 2), _flat(roots(np.arange(n // 2 + 1), n))])
    if is_smooth(n):
        return _flat(roots(np.arange(n), n))
    m = padded(n)
    return np.concatenate([*map(_flat, chirp_tables(n)), _flat(roots(np.arange(m), m))])


def chirp_tables(n: int) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """The chirp exp(-pi i k^2 / n), and the transform of its conjugate, of size m = padded(n) and divided by m."""
    m = padded(n)
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
    chirp = roots(squares, 2 * n)
    wrapped = np.zeros(m, np.complex128)
    wrapped[:n] = chirp.conj()
    wrapped[m - n + 1 :] = chirp[1:].conj()[::-1]
    return chirp, np.fft.fft(wrapped) / m


def roots(k: NDArray[np.int64], n: int) -> NDArray[np.complex128]:
    """exp(-2 pi i k / n) to the last bit or so: the angle is brought into an eighth of the circle in whole numbers."""
    k = np.asarray(k, np.int64) % max(n, 1)
    eighth = (8 * k) // max(n, 1)  # 0..7
    quarter = (eighth + 1) // 2  # the nearest multiple of a quarter turn
    rest = (4 * k - quarter * n) * (np.pi / 2 / max(n, 1))  # within an eighth of a turn
    cosine, sine = np.cos(rest), np.sin(rest)
    rotated = [(cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine)]
    re = np.choose(quarter % 4, [t[0] for t in rotated])
    im = np.choose(quarter % 4, [t[1] for t in rotated])
    return np.asarray(re - 1j * im, np.complex128)


def _flat(z: NDArray[np.complex128]) -> NDArray[np.float64]:
    return np.concatenate([z.real, z.imag])


# on GPUs -------------------------------------------------------------------------------------------------------------
#: the largest radix of a pass, and the least side of its matrix, which is a power of two
RADIX, LEAST = 32, 16


@dataclass(frozen=True)
class Pass:
    """One pass over n = radix * s * rest values, which are s interleaved transforms. padded: rows of its matrix.
    matrix, twiddles: where in the table it and the factors behind it begin."""

    radix: int
    padded: int
    s: int
    rest: int
    matrix: int
    twiddles: int

    @property
    def goes_on(self) -> bool:
        """Whether another pass follows, which multiplies its values by the twiddle factors."""
        return self.rest > 1

    @property
    def end(self) -> int:
        """The first number of the table behind this pass's."""
        return self.twiddles + (2 * self.radix * self.rest if self.goes_on else 0)


@cache
def passes(n: int) -> tuple[Pass, ...]:
    """The passes of a size that is a product of PRIMES: as few as there can be, their radices about the same."""
    found: list[Pass] = []
    for radix in factors(n):
        s = found[-1].s * found[-1].radix if found else 1
        side, start = max(LEAST, 1 << (radix - 1).bit_length()), found[-1].end if found else 0
        found.append(Pass(radix, side, s, n // (radix * s), start, start + 2 * side * side))
    return tuple(found)


def pass_table(n: int) -> NDArray[np.float64]:
    """What the passes of a size read, flat: of each its matrix exp(-2 pi i j k / radix), padded with zeros, and the
    factors exp(-2 pi i s k p / n), [radix][rest]; real parts then imaginary parts."""
    parts = []
    for step in passes(n):
        k = np.arange(step.radix)
        matrix = np.zeros((step.padded, step.padded), np.complex128)
        matrix[: step.radix, : step.radix] = roots(np.outer(k, k), step.radix)
        parts.append(_flat(matrix.reshape(-1)))
        if step.rest > 1:
            twiddles = roots(np.outer(k, np.arange(step.rest)) * step.s, n)
            parts.append(_flat(twiddles.reshape(-1)))
    return np.concatenate(parts)


@cache
def factors(n: int, most: int = RADIX) -> tuple[int, ...]:
    """Factors of n, none above `most`: as few as there can be, of about the same size."""
    return min(_splits(n, most), key=lambda found: (len(found), _work(found), found))


@cache
def _splits(n: int, most: int) -> tuple[tuple[int, ...], ...]:
    """The best way for every number of factors, those in descending order."""
    best: dict[int, tuple[int, ...]] = {1: (n,)} if n <= most else {}
    for factor in range(2, most + 1):
        if n % factor or n == factor:
            continue
        for rest in _splits(n // factor, most):
            found = tuple(sorted((factor, *rest), reverse=True))
            old = best.get(len(found))
            if old is None or _work(found) < _work(old):
                best[len(found)] = found
    least = min(best)
    return tuple(best[length] for length in sorted(best) if length <= least + 1)


def _work(found: tuple[int, ...]) -> int:
    return sum(1 << (factor - 1).bit_length() for factor in found)
