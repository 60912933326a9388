"""fma: one rounding where the target has the instruction, product and sum where not; scalars, lanes and all mixtures of
them alike, to the bit."""

from __future__ import annotations

import ctypes
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from .harness import builds, library, pointer, window

TYPES = {"f32": ("float", np.float32), "f64": ("double", np.float64)}
#: which operands are vectors
FORMS = ["".join(form) for form in product("vs", repeat=3)]
COUNT = 1 << 12
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-38, 3e38]

SOURCE = '#include "kernels/math/math.h"\nusing namespace mycc;\n' + "\n".join(
    f'extern "C" void {form}_{name}(int64_t n, {cpp} *y, const {cpp} *a, const {cpp} *b, const {cpp} *c) {{\n'
    f"  for (int64_t i = 0; i < n; i += {'W' if 'v' in form else 1})\n"
    f"    store{'' if 'v' in form else '_scalar'}(y + i, "
    f"fma({', '.join(f'load({x} + i)' if kind == 'v' else f'{x}[i]' for x, kind in zip('abc', form, strict=True))}));\n"
    "}"
    for form in FORMS
    for name, (cpp, _) in TYPES.items()
)


def operands(dtype: type) -> list[np.ndarray]:
    """Every third sum cancels all but the rounding error of its product."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(COUNT).astype(dtype) for _ in range(3))
    c[::3] = -(a * b)[::3]
    specials = np.array(list(product(SPECIAL, repeat=3))).astype(dtype)
    for x, values in zip((a, b, c), specials.T, strict=True):
        x[: len(values)] = values
    return [a, b, c]


def rounded_once(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c, exact where all is finite and then rounded."""
    want = np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, a * b + c)
    for i in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact != 0 and abs(exact) < Fraction(float(np.finfo(a.dtype).max)):
            want[i] = nearest(exact, a.dtype)
    return want


def nearest(x: Fraction, dtype: np.dtype) -> float:
    """x to the precision of the type: a number of its last place's units, ties to even, as round() has them."""
    info = np.finfo(dtype)
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - info.nmant, info.minexp - info.nmant)
    return float(round(x / unit) * unit)


def run(build: str, form: str, name: str, values: list[np.ndarray]) -> np.ndarray:
    out = np.zeros(COUNT, TYPES[name][1])
    getattr(library(SOURCE, build), f"{form}_{name}")(ctypes.c_int64(COUNT), pointer(out), *map(pointer, values))
    return out


def same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return ((left == right) & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("build", [b for b in builds() if not b.endswith(":x86-64")] or builds())
def test_fma(build: str, name: str) -> None:
    values = operands(TYPES[name][1])
    got = run(build, "vvv", name, values)
    with np.errstate(all="ignore"):
        want = values[0] * values[1] + values[2] if build.endswith(":x86-64-v2") else rounded_once(*values)
    equal = same(got, want)
    assert equal.all(), window(f"fma-{name}", build, int(equal.argmin()), values, got, want)
    scalars = run(build, "sss", name, values)
    equal = same(scalars, want)
    assert equal.all(), window(f"fma-{name}, scalars", build, int(equal.argmin()), values, scalars, want)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("build", [b for b in builds() if not b.endswith(":x86-64")] or builds())
@pytest.mark.parametrize("form", [form for form in FORMS if len(set(form)) == 2])
def test_mixtures(build: str, name: str, form: str) -> None:
    """A scalar stands for a vector of it; here each holds for a whole vector of the longest kind."""
    values = operands(TYPES[name][1])
    held = [np.repeat(v[::16], 16) if kind == "s" else v for v, kind in zip(values, form, strict=True)]
    got, want = run(build, form, name, held), run(build, "vvv", name, held)
    equal = same(got, want)
    assert equal.all(), window(f"fma-{name} {form}", build, int(equal.argmin()), held, got, want)
