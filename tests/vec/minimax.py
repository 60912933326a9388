"""Derives and prints the polynomials of kernels/math/: python tests/vec/minimax.py [NAME]

A fit approximates f(x) by the sum of c_k x^k on [low, high] so that the largest weighted error is smallest.

For float64: the linear Remez exchange in mpmath. On n + 1 points solve for c and the levelled error, move the points to
the extrema of the error curve, and repeat.
For float32: Lawson's reweighted least squares. The coefficients are rounded one by one from the lowest power up, and
those that are still free are fitted again to make good for it.

The printed error is that of the rounded polynomial in exact arithmetic.

A table approximates f(x) by a polynomial of x - p for each of `count` places p near i / parts. f is nearly a float32 at
p (Gal's accurate tables), so that the rounding of c_0 counts for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import mpmath as mp
import numpy as np

mp.mp.dps = 50
Real = Callable[[mp.mpf], mp.mpf]
GRID = 600
PLACES = 2000  # float32 numbers that a table's place is chosen from


@dataclass(frozen=True)
class Fit:
    """f(x) ~ sum c_k x^k on [low, high]; `weight` divides the error; `fixed` powers keep their given coefficient."""

    name: str
    f: Real
    low: float
    high: float
    powers: Sequence[int]
    weight: Real
    single: bool = True
    fixed: dict[int, float] = field(default_factory=dict)


def grid(low: mp.mpf, high: mp.mpf) -> list[mp.mpf]:
    """Chebyshev points, dense at the ends, where the error of a fit is largest."""
    return [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / GRID) for i in range(GRID + 1)]


def value(coefficients: dict[int, mp.mpf], x: mp.mpf) -> mp.mpf:
    return mp.fsum(c * x**k for k, c in coefficients.items())


def remez(fit: Fit, fixed: dict[int, mp.mpf]) -> dict[int, mp.mpf]:
    """The minimax coefficients of the powers that are not fixed."""
    free = [k for k in fit.powers if k not in fixed]
    points = grid(mp.mpf(fit.low), mp.mpf(fit.high))
    targets = [fit.f(x) - value(fixed, x) for x in points]
    weights = [fit.weight(x) for x in points]
    n = len(free)
    chosen = [round(GRID * (1 - np.cos(np.pi * i / n)) / 2) for i in range(n + 1)]
    solution: dict[int, mp.mpf] = {}
    for _ in range(12):
        rows = [[points[i] ** k for k in free] + [(-1) ** j * weights[i]] for j, i in enumerate(chosen)]
        solved = mp.lu_solve(mp.matrix(rows), mp.matrix([targets[i] for i in chosen]))
        solution = {k: solved[j] for j, k in enumerate(free)}
        errors = [(t - value(solution, x)) / w for t, x, w in zip(targets, points, weights, strict=True)]
        moved = exchange(errors, n + 1)
        if moved == chosen or len(moved) != n + 1:
            break
        chosen = moved
    return solution


def exchange(errors: list[mp.mpf], count: int) -> list[int]:
    """One extremum per run of equal sign; the outer ones with the smaller error go while there are too many."""
    runs: list[int] = []
    for i, e in enumerate(errors):
        if runs and (e > 0) == (errors[runs[-1]] > 0):
            if abs(e) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def lawson(fit: Fit, fixed: dict[int, mp.mpf]) -> dict[int, mp.mpf]:
    """The minimax coefficients of the powers that are not fixed, by Lawson's reweighted least squares: unlike Remez it
    does not ask that the remaining powers have the Haar property, which x^2, x^3, .. lack around 0."""
    free = [k for k in fit.powers if k not in fixed]
    points = grid(mp.mpf(fit.low), mp.mpf(fit.high))
    weights = np.array([float(fit.weight(x)) for x in points])
    targets = np.array([float(fit.f(x) - value(fixed, x)) for x in points]) / weights
    scale = max(abs(fit.low), abs(fit.high))
    basis = np.array([[(float(x) / scale) ** k for k in free] for x in points]) / weights[:, None]
    importance = np.full(len(points), 1.0 / len(points))
    best, best_error = None, np.inf
    for _ in range(200):
        root = np.sqrt(importance)[:, None]
        solved = np.linalg.lstsq(basis * root, targets * root[:, 0], rcond=None)[0]
        error = np.abs(basis @ solved - targets)
        if error.max() < best_error:
            best, best_error = solved, error.max()
        importance = importance * (error + 1e-3 * error.max())
        importance /= importance.sum()
    assert best is not None
    return {k: mp.mpf(float(c) / scale**k) for k, c in zip(free, best, strict=True)}


def solve(fit: Fit) -> tuple[dict[int, float], mp.mpf]:
    """Rounded coefficients and the largest weighted error they leave."""
    fixed = {k: mp.mpf(c) for k, c in fit.fixed.items()}
    if fit.single:
        for k in [k for k in fit.powers if k not in fixed]:
            fixed[k] = mp.mpf(float(np.float32(lawson(fit, fixed)[k])))
    else:
        fixed |= {k: mp.mpf(float(c)) for k, c in remez(fit, fixed).items()}
    points = grid(mp.mpf(fit.low), mp.mpf(fit.high))
    worst = max(abs((fit.f(x) - value(fixed, x)) / fit.weight(x)) for x in points)
    return {k: float(c) for k, c in sorted(fixed.items())}, worst


def spread(f: Real, at_zero: float, threshold: float = 1e-12) -> Real:
    """f with its limit at 0, where the formula is 0 / 0."""
    return lambda x: mp.mpf(at_zero) if abs(x) < threshold else f(x)


LN2 = mp.log(2)
ERF_SPLIT = 0.95
TANH_SPLIT = 0.7
PHI_SPLIT, PHI_CENTRE = 0.88, 2.125


def log2_erfc(a: mp.mpf) -> mp.mpf:
    return mp.log(mp.erfc(a), 2)


def phi_tail_of(w: mp.mpf) -> mp.mpf:
    """a Phi(-a) exp(a^2 / 2) with w = (a - 2.125) / (a + 2.125): the normal tail without its exponential."""
    a = PHI_CENTRE * (1 + w) / (1 - w)
    return a * mp.erfc(a / mp.sqrt(2)) * mp.exp(a * a / 2) / 2


def one(_: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


def erfcx_of(t: mp.mpf, k: float) -> mp.mpf:
    """exp(a^2) erfc(a) with t = (a - k) / (a + k)."""
    a = k * (1 + t) / (1 - t)
    return mp.erfc(a) * mp.exp(a * a)


FITS = (
    Fit("exp", mp.exp, -0.3468, 0.3468, range(7), mp.exp, fixed={0: 1.0}),
    Fit("exp2", lambda x: mp.mpf(2) ** x, -0.5, 0.5, range(7), lambda x: mp.mpf(2) ** x, fixed={0: 1.0}),
    Fit("exp2_short", lambda x: mp.mpf(2) ** x, -0.5, 0.5, range(6), lambda x: mp.mpf(2) ** x, fixed={0: 1.0}),
    Fit(
        "erf_small",
        spread(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, 2 / mp.sqrt(mp.pi) - 1),
        0,
        ERF_SPLIT**2,
        range(6),
        one,
    ),
    Fit("erf_large", log2_erfc, ERF_SPLIT, 4.0, range(7), lambda a: mp.erf(a) / mp.erfc(a)),
    Fit(
        "tanh_small",
        spread(lambda z: mp.tanh(mp.sqrt(z)) / mp.sqrt(z), 1.0),
        0,
        TANH_SPLIT**2,
        range(7),
        one,
        fixed={0: 1.0},
    ),
    Fit(
        "phi_small",
        spread(lambda z: (mp.ncdf(mp.sqrt(z)) - 0.5) / mp.sqrt(z), 1 / mp.sqrt(2 * mp.pi)),
        0,
        PHI_SPLIT**2,
        range(5),
        spread(lambda z: mp.ncdf(-mp.sqrt(z)) / mp.sqrt(z), 1e12),
    ),
    Fit(
        "phi_tail",
        phi_tail_of,
        (PHI_SPLIT - PHI_CENTRE) / (PHI_SPLIT + PHI_CENTRE),
        (14.5 - PHI_CENTRE) / (14.5 + PHI_CENTRE),
        range(9),
        phi_tail_of,
    ),
    Fit(
        "log",
        spread(lambda x: (mp.log1p(x) - x + x * x / 2) / x**3, mp.mpf(1) / 3),
        -0.2929,
        0.41422,
        range(8),
        lambda x: mp.log1p(x) / x**3 if abs(x) > 1e-3 else mp.mpf(10) ** 6,
    ),
    Fit("exp_f64", mp.exp, -0.34662, 0.34662, range(10), mp.exp, single=False, fixed={0: 1.0}),
    Fit(
        "log_f64",
        spread(lambda z: mp.atanh(mp.sqrt(z)) / mp.sqrt(z), 1.0),
        0,
        0.029438,
        range(7),
        one,
        single=False,
        fixed={0: 1.0},
    ),
    Fit(
        "sin_f64",
        spread(lambda z: mp.sin(mp.sqrt(z)) / mp.sqrt(z), 1.0),
        0,
        0.6169,
        range(6),
        one,
        single=False,
        fixed={0: 1.0},
    ),
    Fit("cos_f64", lambda z: mp.cos(mp.sqrt(z)), 0, 0.6169, range(6), one, single=False, fixed={0: 1.0}),
    Fit(
        "atan_f64",
        spread(lambda z: mp.atan(mp.sqrt(z)) / mp.sqrt(z), 1.0),
        0,
        0.17158,
        range(9),
        one,
        single=False,
        fixed={0: 1.0},
    ),
    Fit("erfcx_f64", lambda t: erfcx_of(t, 2.0), -1, 0.6695, range(13), lambda t: erfcx_of(t, 2.0), single=False),
)


@dataclass(frozen=True)
class Table:
    """f(x) for 0 <= x < (count - 1/2) / parts, by polynomials of `degree` with small relative errors."""

    name: str
    f: Real
    count: int = 32
    parts: int = 8
    degree: int = 5

    def place(self, i: int) -> np.float32:
        """The float32 near i / parts where f is nearest to a float32."""
        if i == 0:
            return np.float32(0)
        places = [np.float32(i / self.parts)]
        for _ in range(PLACES):
            places.append(np.nextafter(places[-1], np.float32(np.inf)))

        def error(x: np.float32) -> mp.mpf:
            exact = self.f(mp.mpf(float(x)))
            return abs(float(np.float32(float(exact))) / exact - 1)

        return min(places, key=error)

    def fit(self, i: int) -> tuple[np.float32, Fit]:
        """The place of polynomial i, and its fit in d = x - place."""
        at = self.place(i)
        low, high = max(i - 0.5, 0) / self.parts - float(at), (i + 0.5) / self.parts - float(at)

        def f(d: mp.mpf) -> mp.mpf:
            return self.f(float(at) + d)

        first = float(np.float32(float(f(mp.mpf(0)))))
        return at, Fit(self.name, f, low, high, range(self.degree + 1), f, fixed={0: first})


def normal_tail(a: mp.mpf) -> mp.mpf:
    return mp.ncdf(-a)


def logistic_tail(a: mp.mpf) -> mp.mpf:
    """1 / (1 + exp(2 u)), u = sqrt(2 / pi) (a + 0.044715 a^3)."""
    return 1 / (1 + mp.exp(2 * mp.sqrt(2 / mp.pi) * (a + mp.mpf("0.044715") * a**3)))


TABLES = (Table("gelu_erf", normal_tail), Table("gelu_tanh", logistic_tail))


def print_table(table: Table) -> None:
    """The places, then the coefficients of each power."""
    fits = [table.fit(i) for i in range(table.count)]
    solved = [solve(fit) for _, fit in fits]
    print(f"{table.name}: error {mp.nstr(max(worst for _, worst in solved), 3)}")
    rows = [[at for at, _ in fits], *([c[k] for c, _ in solved] for k in range(table.degree + 1))]
    for numbers in rows:
        print("  {" + ", ".join(f"{x:.9g}f" for x in numbers) + "},")


def main(names: Sequence[str]) -> None:
    for table in TABLES:
        if not names or table.name in names:
            print_table(table)
    for fit in FITS:
        if names and fit.name not in names:
            continue
        coefficients, worst = solve(fit)
        print(f"{fit.name}: error {mp.nstr(worst, 3)} = 2^{mp.nstr(mp.log(worst, 2), 3)}")
        print("  " + ", ".join(f"{c:.9g}f" if fit.single else c.hex() for c in coefficients.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
