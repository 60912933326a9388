from __future__ import annotations

import hashlib

import numpy as np
import pytest
from mycc.runtime.arrays import narrow_bfloat, widen_bfloat
from mycc.runtime.generator import Fill, example_fill, fill, fill_tensor

FLOATS = ["f16", "bf16", "f32", "f64"]
INTEGERS = ["bool", "u8", "i8", "i16", "i32", "i64"]


def values(dtype: str, array: np.ndarray) -> np.ndarray:
    return (widen_bfloat(array) if dtype == "bf16" else array).astype(np.float64)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_the_spread(dtype: str) -> None:
    array = values(dtype, fill(dtype, (100, 1000), 7, spread=(3.0, 0.5)))
    assert array.shape == (100, 1000)
    assert array.mean() == pytest.approx(3.0, abs=0.01)
    assert array.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_fill_their_range(dtype: str) -> None:
    low, high = (0, 1) if dtype in ("bool", "u8") else (-5, 6)
    array = fill(dtype, (5000,), 3, limits=(low, high)).astype(np.int64)
    assert set(array.tolist()) == set(range(low, high + 1))


def test_the_widest_integers() -> None:
    array = fill("i64", (1000,), 3, limits=(-(2**63), 2**63 - 1))
    assert array.min() < -(2**62) < 2**62 < array.max()


def test_an_element_depends_on_seed_and_position_only() -> None:
    long, short = fill("f32", (300_000,), 5), fill("f32", (7, 11), 5)
    assert np.array_equal(long[:77].reshape(7, 11), short)
    assert not np.array_equal(fill("f32", (77,), 6), short.reshape(-1))
    assert abs(np.corrcoef(long[1:], long[:-1])[0, 1]) < 0.01
    assert abs(np.corrcoef(long, fill("f32", (300_000,), 6))[0, 1]) < 0.01


def test_the_bits_never_change() -> None:
    """Certificates in packages that exist rest on these bits."""
    digest = hashlib.sha256()
    for dtype in FLOATS:
        digest.update(fill(dtype, (1000,), 42, spread=(0.1, 1.7)).tobytes())
    for dtype in INTEGERS:
        digest.update(fill(dtype, (1000,), 42, limits=(0, 1)).tobytes())
    digest.update(fill("i64", (1000,), -1, limits=(-3, 50256)).tobytes())
    assert digest.hexdigest() == "ab3b828088177339e1dcb5aff5f06a7d53add3c1a6933ad810e83ccad2d8802b"


def test_shapes_without_elements_and_without_dimensions() -> None:
    assert fill("f32", (0, 3), 1).shape == (0, 3)
    assert fill("i64", (), 1, limits=(4, 4)).item() == 4


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="f32 takes a spread"):
        fill("f32", (2,), 1, limits=(0, 1))
    with pytest.raises(ValueError, match="i64 takes limits"):
        fill("i64", (2,), 1, spread=(0.0, 1.0))
    with pytest.raises(ValueError, match="the limits 3 to 2 are empty"):
        fill("i64", (2,), 1, limits=(3, 2))


def test_an_example_is_imitated() -> None:
    assert example_fill(np.array([[4, 9], [5, 5]]), 3) == Fill(3, limits=(4, 9))
    assert example_fill(np.array([True, False]), 3) == Fill(3, limits=(0, 1))
    how = example_fill(np.array([0.0, 2.0, -np.inf], np.float32), 3)
    assert how == Fill(3, spread=(1.0, 1.0))
    assert fill_tensor("f32", (2, 2), how).dtype == np.float32


def test_bfloat_rounds_to_nearest_even() -> None:
    exact = np.array([1.0, -2.5, 0.0, np.inf], np.float32)
    assert np.array_equal(widen_bfloat(narrow_bfloat(exact)), exact)
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    assert widen_bfloat(narrow_bfloat(halves)).tolist() == [1.0, 1 + 4 * 2**-8]
    assert np.isnan(widen_bfloat(narrow_bfloat(np.array([np.nan]))))[0]
