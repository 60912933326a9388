"""Each law of ir/laws.py: both of its sides in float64, on random values; and who uses a law names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mycc.compiler.ir import laws
from mycc.compiler.ir.layouts import WINOGRAD

COMPILER = Path(__file__).parents[2] / "compiler"


def draw(seed: int, *shape: int, scale: float = 1.0) -> laws.Array:
    return np.random.default_rng(seed).standard_normal(shape) * scale


seeds, sizes = st.integers(0, 9999), st.integers(1, 40)


@given(seeds, sizes, sizes, st.sampled_from((0.0, 5.0, -300.0)))
def test_chan(seed: int, first: int, second: int, around: float) -> None:
    x = draw(seed, first + second) + around
    joined = laws.chan(laws.deviations(x[:first]), laws.deviations(x[first:]))
    assert joined == pytest.approx(laws.deviations(x), rel=1e-9, abs=1e-12)


@given(seeds, sizes)
def test_welford_is_chan_of_single_values(seed: int, count: int) -> None:
    x = draw(seed, count)
    found = laws.deviations(x[:1])
    for value in x[1:]:
        found = laws.chan(found, laws.Deviations(1, float(value), 0.0))
    assert found == pytest.approx(laws.deviations(x), rel=1e-9, abs=1e-12)


@given(seeds, sizes, sizes, st.sampled_from((1.0, 80.0, 700.0)))
def test_online_softmax(seed: int, first: int, second: int, scale: float) -> None:
    x = draw(seed, first + second, scale=scale)
    joined = laws.online_softmax(laws.exponentials(x[:first]), laws.exponentials(x[first:]))
    assert joined == pytest.approx(laws.exponentials(x), rel=1e-12)


@given(seeds, st.integers(0, 5), st.integers(1, 4), st.integers(1, 6), st.integers(0, 7))
def test_split_k(seed: int, rows: int, columns: int, parts: int, step: int) -> None:
    a, b = draw(seed, rows, parts * step), draw(seed + 1, parts * step, columns)
    np.testing.assert_allclose(laws.split_k(a, b, parts), a @ b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("outputs", "stride"), WINOGRAD)
@given(seed=seeds)
def test_winograd(outputs: int, stride: int, seed: int) -> None:
    """By the points that weights are packed with."""
    g, taps, x = WINOGRAD[outputs, stride], draw(seed, 3), draw(seed + 1, (outputs - 1) * stride + 3)
    found = laws.winograd(g, outputs, taps, x) if stride == 1 else laws.winograd_of_two(g, taps, x)
    wanted = [x[j * stride : j * stride + 3] @ taps for j in range(outputs)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_other_points_are_no_law() -> None:
    """A matrix with a wrong value gives other results: the equations have no solution then."""
    rows = [list(row) for row in WINOGRAD[2, 1]]
    rows[1][2] *= 1.5
    taps, x = draw(1, 3), draw(2, 4)
    wanted = [x[j : j + 3] @ taps for j in range(2)]
    assert np.abs(laws.winograd(rows, 2, taps, x) - wanted).max() > 1e-3


#: law -> the files that it allows to do what they do
USERS = {
    "chan": ("schedule/algebra/blocked_variance.py", "schedule/algebra/welford.py"),
    "online_softmax": ("schedule/algebra/online_softmax.py",),
    "split_k": ("schedule/algebra/split_k_cpu.py", "schedule/algebra/split_k_gpu.py"),
    "winograd": ("ir/layouts.py", "lower/contract/conv_algorithm.py"),
}


@pytest.mark.parametrize("law", USERS)
def test_who_uses_a_law_names_it(law: str) -> None:
    assert callable(getattr(laws, law))
    for path in USERS[law]:
        assert f"`{law}` of ir/laws.py" in " ".join((COMPILER / path).read_text().split()), path
