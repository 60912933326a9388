"""lookup.h: rows looked up by tables of indices; nothing outside of the row is read, nor more of the table."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from .harness import GuardedMemory, best_builds, library, pointer

SOURCE = (Path(__file__).parent / "lookup_library.cpp").read_text()
TYPES = {"f64": np.float64, "f32": np.float32, "i16": np.int16, "u8": np.uint8}


@pytest.fixture(params=best_builds())
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    found = library(SOURCE, request.param)
    found.memory.restype = ctypes.c_int64
    return found


def tables(n: int, extent: int) -> dict[str, np.ndarray]:
    steps = np.arange(n)
    return {
        "larger": steps * extent // n,
        "every second": np.minimum(2 * steps, extent - 1),
        "backwards": extent - 1 - steps % extent,
        "anywhere": np.random.default_rng(n).integers(0, extent, n),
    }


@pytest.mark.parametrize("name", TYPES)
def test_rows_by_tables(lib: ctypes.CDLL, name: str) -> None:
    seen = set()
    for extent in (1, 3, 5, 15, 16, 17, 31, 33, 90):
        row = GuardedMemory(4096).tail(extent, TYPES[name])
        row[:] = np.random.default_rng(extent).integers(0, 120, extent)
        for n in (1, 7, 16, 45, 64):
            at = GuardedMemory(4096).tail(n, np.int64)
            for form, values in tables(n, extent).items():
                at[:] = values
                memory, out = np.zeros(lib.memory(ctypes.c_int64(n)), np.int32), np.zeros(n, TYPES[name])
                sizes = ctypes.c_int64(n), ctypes.c_int64(extent)
                near = getattr(lib, f"look_up_{name}")(pointer(memory), pointer(row), pointer(at), *sizes, pointer(out))
                np.testing.assert_array_equal(out, row[values], f"{form}, {n} of {extent}")
                seen.add(near)
    assert seen == {0, 1, 2}


def test_what_is_known_of_a_table(lib: ctypes.CDLL) -> None:
    w = lib.lanes()

    def near(values: np.ndarray, extent: int) -> int:
        at, row = values.astype(np.int64), np.zeros(extent, np.float32)
        memory, out = np.zeros(lib.memory(ctypes.c_int64(len(at))), np.int32), np.zeros(len(at), np.float32)
        sizes = ctypes.c_int64(len(at)), ctypes.c_int64(extent)
        return lib.look_up_f32(pointer(memory), pointer(row), pointer(at), *sizes, pointer(out))

    steps = np.arange(4 * w)
    assert near(steps, 4 * w) == near(steps // 2, 4 * w) == near(steps[::-1] % w, w) == 1
    assert near(steps[::-1] % (2 * w), 2 * w) == near(steps[::-1], 4 * w) == 1
    assert near(2 * steps, 8 * w) == near(2 * steps[::-1], 8 * w) == 2
    assert near(3 * steps, 12 * w) == near(3 * steps[::-1], 12 * w) == 0
    assert near(steps, 4 * w - 1) == near(steps - 1, 4 * w) == -1
