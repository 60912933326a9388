"""kernels/vec/bounds.h: lanes outside of a row have another value, and nothing outside of it is read."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from .harness import GuardedMemory, best_builds, library, pointer

SOURCE = (Path(__file__).parent / "bounds_library.cpp").read_text()
TYPES = {"f64": np.float64, "f32": np.float32, "i16": np.int16, "u8": np.uint8}


@pytest.fixture(params=best_builds())
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(SOURCE, request.param)


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("name", TYPES)
def test_lanes_outside_of_a_row(lib: ctypes.CDLL, name: str, step: int) -> None:
    w = lib.lanes()
    function = getattr(lib, f"inside_{name}_{step}")
    for n in (1, 5, step * (w - 1) + 1, 3 * step * w):
        memory = GuardedMemory(8192)
        row = memory.tail(n, TYPES[name])
        row[:] = np.random.default_rng(3).integers(20, 120, n)
        address = ctypes.c_void_p(memory.base + 8192 - row.nbytes)
        for at in (-200, -step * w, -step - 1, -1, 0, 1, n - step * (w - 1) - 1, n - step, n - 1, n, n + 9):
            places = at + step * np.arange(w)
            inside = (places >= 0) & (places < n)
            found = np.where(inside, row[places.clip(0, n - 1)], 0)
            for count in (1, w // 2 + 1, w):
                # a row without an end: none of the lanes that count goes past it
                for end in (False, *([True] if at + step * (w - 1) < n else [])):
                    out = np.zeros(4 * w, TYPES[name])
                    function(address, ctypes.c_int64(at), ctypes.c_int64(n), int(end), count, pointer(out))
                    first = np.arange(w) < count
                    np.testing.assert_array_equal(out[:w], found)
                    np.testing.assert_array_equal(out[w : 2 * w], np.where(inside, found, 7))
                    np.testing.assert_array_equal(out[2 * w : 3 * w][first], found[first])
                    np.testing.assert_array_equal(out[3 * w :], np.where(inside & first, found, 7))


@pytest.mark.parametrize("name", TYPES)
def test_some_lanes_backwards(lib: ctypes.CDLL, name: str) -> None:
    w = lib.lanes()
    for count in range(w + 1):
        memory = GuardedMemory(8192)
        row = memory.tail(max(count, 1), TYPES[name])
        row[:] = np.random.default_rng(3).integers(20, 120, len(row))
        out = np.zeros(w, TYPES[name])
        last = ctypes.c_void_p(memory.base + 8192 - row.itemsize)
        getattr(lib, f"backwards_{name}")(last, count, pointer(out))
        np.testing.assert_array_equal(out[:count], row[::-1][:count])
        np.testing.assert_array_equal(out[count:], 0)
