"""kernels/vec/interleave.h: vectors that lie in turn, backwards, or around an end; nothing outside is touched."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from .harness import GuardedMemory, best_builds, library, pointer, whole_numbers

SOURCE = (Path(__file__).parent / "interleave_library.cpp").read_text()
TYPES = {"f64": np.float64, "f32": np.float32, "i16": np.int16, "word": np.uint16, "u8": np.uint8}
COUNTS = range(2, 9)


@pytest.fixture(params=best_builds())
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(SOURCE, request.param)


@pytest.mark.parametrize("name", TYPES)
def test_interleaved_stores(lib: ctypes.CDLL, name: str) -> None:
    w = lib.lanes()
    for e in COUNTS:
        source = whole_numbers(TYPES[name], e * w)
        expected = source.reshape(e, w).T.ravel()
        out = np.zeros(e * w, TYPES[name])
        getattr(lib, f"woven_{name}_{e}")(pointer(out), pointer(source))
        np.testing.assert_array_equal(out, expected)
        for n in range(w + 1):
            memory = GuardedMemory(4096)
            p = memory.tail(n * e, TYPES[name])
            address = ctypes.c_void_p(memory.base + 4096 - p.nbytes)
            getattr(lib, f"woven_tail_{name}_{e}")(address, pointer(source), n)
            np.testing.assert_array_equal(p, expected[: n * e])


@pytest.mark.parametrize("name", TYPES)
def test_interleaved_loads_stop_at_the_guard(lib: ctypes.CDLL, name: str) -> None:
    w = lib.lanes()
    for e in COUNTS:
        out = np.zeros(4 * w, TYPES[name])
        memory = GuardedMemory(4096)
        p = memory.tail(e * (w - 1) + 1, TYPES[name])
        p[:] = whole_numbers(TYPES[name], p.size)
        getattr(lib, f"every_{name}_{e}")(ctypes.c_void_p(memory.base + 4096 - p.nbytes), pointer(out))
        np.testing.assert_array_equal(out[:w], p[::e])
        whole = memory.tail(e * w, TYPES[name])
        whole[:] = whole_numbers(TYPES[name], whole.size)
        address = ctypes.c_void_p(memory.base + 4096 - whole.nbytes)
        for n in range(1, w + 1):
            out[:] = 0
            getattr(lib, f"turn_{name}_{e}")(address, pointer(out), n)
            np.testing.assert_array_equal(out[:w], whole[::e])
            np.testing.assert_array_equal(out[w : 2 * w], whole[e - 1 :: e])
            np.testing.assert_array_equal(out[2 * w : 2 * w + n], whole[::e][:n])
            np.testing.assert_array_equal(out[3 * w : 3 * w + n], whole[e - 1 :: e][:n])


@pytest.mark.parametrize("name", TYPES)
def test_backwards_and_around_the_end(lib: ctypes.CDLL, name: str) -> None:
    w = lib.lanes()
    out = np.zeros(w, TYPES[name])
    p = whole_numbers(TYPES[name], w)
    last = ctypes.c_void_p(p.ctypes.data + (w - 1) * p.itemsize)
    getattr(lib, f"reversed_{name}")(last, pointer(out))
    np.testing.assert_array_equal(out, p[::-1])
    for n in (1, 3, w, 2 * w + 1):
        memory = GuardedMemory(4096)
        row = memory.tail(n, TYPES[name])
        row[:] = whole_numbers(TYPES[name], n)
        address = ctypes.c_void_p(memory.base + 4096 - row.nbytes)
        for at in range(n):
            expected = row[(at + np.arange(w)) % n]
            getattr(lib, f"round_{name}")(address, ctypes.c_int64(at), ctypes.c_int64(n), pointer(out))
            np.testing.assert_array_equal(out, expected)
            for lanes in range(1, w + 1):
                getattr(lib, f"round_tail_{name}")(address, ctypes.c_int64(at), ctypes.c_int64(n), lanes, pointer(out))
                np.testing.assert_array_equal(out[:lanes], expected[:lanes])
                assert not out[lanes:].any()
