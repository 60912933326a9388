"""What the operator table's functions are in mpmath, and where to look: every row that is not rounded correctly.

mpmath works with 100 bits here. It has neither signed zeros nor C's conventions about infinities and NaN: where an
operand is one of these, the row's own reference is asked instead.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np
import torch
from mycc.compiler.ir.ops import OPS

BITS = 100
PI = float(np.pi)


def _lgamma(x: mp.mpf) -> mp.mpf:
    return mp.log(abs(mp.gamma(x))) if abs(x) < 1e5 else mp.re(mp.loggamma(x))


def _gelu_tanh(x: mp.mpf) -> mp.mpf:
    return x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)))


def _pow(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    return mp.power(x, y)


#: row -> its meaning for finite operands that are not 0
MEANING: dict[str, Callable[..., mp.mpf]] = {
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "hypot": lambda x, y: mp.sqrt(x * x + y * y),
    "exp": mp.exp,
    "exp2": lambda x: mp.power(2, x),
    "expm1": mp.expm1,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": lambda x: mp.log(x) / mp.log(10),
    "log1p": lambda x: mp.log1p(x) if x > -1 else mp.log(1 + x) if x != -1 else -mp.inf,
    "pow": _pow,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "atan2": mp.atan2,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "lgamma": _lgamma,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "gelu_erf": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "gelu_tanh": _gelu_tanh,
}

#: where float32 stops: arguments beyond which the result is 0, 1, infinity or the argument; mpmath need not go further
_FAR = {
    **dict.fromkeys(("exp", "expm1", "sinh", "cosh", "tanh", "sigmoid", "silu", "gelu_erf", "gelu_tanh"), 250.0),
    **dict.fromkeys(("exp2", "erf", "erfc"), 300.0),
}


def exact(name: str, operands: list[np.ndarray]) -> np.ndarray:
    """The results as float64: of mpmath, or of the row's reference for zeros, infinities and NaN."""
    meaning = MEANING[name]
    wide = [o.astype(np.float64) for o in operands]
    with np.errstate(all="ignore"):
        result = OPS[name].reference(*(torch.from_numpy(o) for o in wide)).numpy().copy()
    plain = np.logical_and.reduce([np.isfinite(o) & (o != 0) for o in wide])
    if name in _FAR:
        plain &= np.abs(wide[0]) < _FAR[name]
    with mp.workprec(BITS):
        for i in np.flatnonzero(plain):
            result[i] = _number(meaning, [o[i] for o in wide])
    return result


def _number(meaning: Callable[..., mp.mpf], operands: list[float]) -> float:
    try:
        value = meaning(*(mp.mpf(float(x)) for x in operands))
    except (ValueError, ZeroDivisionError):  # a pole: lgamma of a negative integer
        return float("inf")
    if isinstance(value, mp.mpc):
        return float(value.real) if value.imag == 0 else float("nan")
    return float(value)


# places to look ------------------------------------------------------------------------------------------------------
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38, -1.1754942e-38, 1.1754944e-38, 3.4028235e38,
     -3.4028235e38, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 65536.0],
    np.float32,
)  # fmt: skip

#: borders within float32: where results overflow or vanish, where formulas change, where functions have zeros or poles
BORDERS = (
    *(88.722839, 103.972, 87.3365, 89.4159, 128.0, 149.0, 126.0, 9.01, 10.0, 4.0, 3.9192059, 0.7, 0.88, 0.95, 1.0, 2.0),
    *(14.3, 13.2, 11.5, 10.05, 9.19, 0.25, 0.5, 1.5, 3.0, 16.0, 17.0, 120.0, 88.0, 104.0, 5.0, 6.0, 8.0),
    *(2.4570247382, 2.7476826467, 3.1435808883, 3.9552942848, 1.4616321449),
    *(2.0**-13, 2.0**-11, 2.0**-25, 2.0**-12, 2.0**22, 2.0**23, 2.0**24, 2.0**31),
)


def neighbours(values: np.ndarray, reach: int) -> np.ndarray:
    """Each value with the `reach` float32 below and above it."""
    bits = values.astype(np.float32).view(np.int32)[:, None] + np.arange(-reach, reach + 1, dtype=np.int32)
    return bits.ravel().view(np.float32)


def arguments(seed: int, dense: int = 1500) -> np.ndarray:
    """float32 of every exponent and both signs, subnormal ones too; dense ones where functions bend; borders and the
    neighbours of multiples of pi/2; special values."""
    rng = np.random.default_rng(seed)
    exponents = np.repeat(np.arange(0, 255, dtype=np.uint32), 4)
    mantissas = rng.integers(0, 2**23, len(exponents), dtype=np.uint32)
    every = (exponents << 23 | mantissas).view(np.float32)
    quarters = np.concatenate([np.arange(1, 40), rng.integers(40, 2**26, 60)]) * (PI / 2)
    parts = [
        every,
        -every,
        rng.uniform(-4, 4, dense),
        rng.uniform(-16, 16, dense),
        rng.uniform(-110, 110, dense),
        np.exp(rng.uniform(-9, 3, dense // 2)) * rng.choice([-1, 1], dense // 2),
        1 + rng.uniform(-1, 1, dense // 2) * np.exp(rng.uniform(-16, 0, dense // 2)),
        neighbours(np.array(BORDERS), 3),
        -neighbours(np.array(BORDERS), 3),
        neighbours(quarters, 1),
        -neighbours(quarters[:30], 1),
        SPECIAL,
    ]
    return np.concatenate([np.asarray(p, np.float32) for p in parts])


def operands_of(name: str) -> list[np.ndarray]:
    """Operands of a row: alone, or as pairs of every kind of number with a multiple of 64 in all."""
    x = arguments(len(name))
    if OPS[name].arity == 1:
        columns = [x]
    else:
        rng = np.random.default_rng(7)
        columns = _powers(rng) if name == "pow" else [rng.permutation(x), rng.permutation(x)]
        pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
        columns = [np.concatenate([c, p]) for c, p in zip(columns, pairs, strict=True)]
    whole = -(-len(columns[0]) // 64) * 64
    return [np.resize(c, whole) for c in columns]


def _powers(rng: np.random.Generator) -> list[np.ndarray]:
    """Bases and exponents whose power float32 holds, mostly; whole exponents of negative bases too."""
    n = 3000
    base = np.exp(rng.uniform(-88, 88, n))
    target = rng.uniform(-104, 89, n)  # the natural logarithm of the power
    near = 1 + rng.uniform(-1, 1, n) * np.exp(rng.uniform(-15, -1, n))
    bases = np.concatenate([base, near, -np.exp(rng.uniform(-4, 4, n))])
    with np.errstate(divide="ignore"):
        exponents = np.concatenate([target / np.log(base), target / np.log(near), rng.integers(-20, 20, n)])
    return [bases.astype(np.float32), exponents.astype(np.float32)]
