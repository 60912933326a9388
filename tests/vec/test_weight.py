"""kernels/math/softmax_weight.h: the exponential of a softmax, whose error may grow as the weight becomes small."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from .harness import best_builds, library, pointer

SOURCE = """
#include "kernels/math/math.h"
using namespace mycc;
extern "C" void weights(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i += W) store(y + i, exp_weight(load(x + i)));
}
extern "C" int fused() {
#if defined(__FMA__) || defined(__aarch64__)
  return 1;
#else
  return 0;
#endif
}
"""
LEAST = -87.33  # exp of it is the least normal number, nearly


def weights(lib: ctypes.CDLL, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    lib.weights(pointer(x), pointer(y), ctypes.c_int64(x.size))
    return y


@pytest.fixture(params=best_builds())
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(SOURCE, request.param)


def test_weights_have_their_relative_error(lib: ctypes.CDLL) -> None:
    spread, near = np.linspace(LEAST, 0, 1 << 20), -np.logspace(-9, 1, 1 << 18)
    x = np.concatenate([spread, near]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    bound = 2e-7 + (2e-8 if lib.fused() else 1e-7) * -x.astype(np.float64)
    assert (np.abs(weights(lib, x) - exact) <= bound * exact).all()


def test_what_is_no_normal_number_may_be_zero(lib: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-89, LEAST, 4096), -np.logspace(2, 38, 4096)]).astype(np.float32)
    y = weights(lib, x)
    assert ((y >= 0) & (y <= 1.2e-38)).all()
    assert not y[x < -88.1].any()


def test_one_nothing_and_no_number(lib: ctypes.CDLL) -> None:
    x = np.resize(np.array([0.0, -0.0, -np.inf, np.nan], np.float32), 64)
    np.testing.assert_array_equal(weights(lib, x), np.resize(np.array([1, 1, 0, np.nan], np.float32), 64))
