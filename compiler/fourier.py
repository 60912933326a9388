"""Tables for the transforms of runtime/include/mycc/fft.h: roots of unity, and what Bluestein's algorithm needs."""

from __future__ import annotations

from collections.abc import Sequence

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
        return root_table(n)
    return np.concatenate([*map(_flat, chirp_tables(n)), root_table(padded(n))])


def root_table(n: int) -> NDArray[np.float64]:
    """The n roots exp(-2 pi i k / n), real parts then imaginary parts."""
    return _flat(roots(np.arange(n), n))


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
    turned = [(cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine)]
    re = np.choose(quarter % 4, [t[0] for t in turned])
    im = np.choose(quarter % 4, [t[1] for t in turned])
    return np.asarray(re - 1j * im, np.complex128)


def _flat(z: NDArray[np.complex128]) -> NDArray[np.float64]:
    return np.concatenate([z.real, z.imag])
