"""Tiles of kernels/loops/transpose.h and rows of kernels/vec/interleave.h: nothing outside of them is touched."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from .harness import GuardedMemory, best_builds, library, pointer, whole_numbers

SOURCE = (Path(__file__).parent / "transpose_library.cpp").read_text()
TYPES = {"f64": np.float64, "f32": np.float32, "u16": np.uint16, "u8": np.uint8}
LINE = 64
MOST_ROWS = 128
#: rows, and bytes from one to the next beside those that are read: some share the sets of a cache
SHAPES = [(128, 0), (64, 40), (1, 0), (17, 8), (128, 4096 - LINE), (61, 4096 - LINE)]


@pytest.fixture(params=best_builds())
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(SOURCE, request.param)


@pytest.mark.parametrize("name", TYPES)
def test_short_rows_are_transposed(lib: ctypes.CDLL, name: str) -> None:
    """To and fro; of the last block nothing behind the last row is read, of others less than a row."""
    dtype, rows = TYPES[name], 64
    margin = LINE // np.dtype(dtype).itemsize
    for length in (9, 10, 16, 17, 49, 63):
        for valid, behind, pitch in ((rows, 0, length), (37, 0, length + 3), (rows, length, length), (1, 0, length)):
            memory = GuardedMemory(1 << 20)
            source = memory.tail((valid - 1) * pitch + length + behind, dtype)
            source[:] = whole_numbers(dtype, source.size)
            address = ctypes.c_void_p(memory.base + (1 << 20) - source.nbytes)
            tile = np.zeros((length + margin, rows), dtype)
            sizes = (ctypes.c_int64(n) for n in (pitch, length, valid))
            getattr(lib, f"rows_{name}")(pointer(tile), address, *sizes, ctypes.c_bool(behind > 0))
            places = np.minimum(np.arange(rows), valid - 1)
            expected = np.stack([source[r * pitch : r * pitch + length] for r in places], 1)
            np.testing.assert_array_equal(tile[:length], expected)
            back = np.zeros(rows * length + margin, dtype)
            getattr(lib, f"back_{name}")(pointer(back), pointer(tile), ctypes.c_int64(length))
            np.testing.assert_array_equal(back[: rows * length].reshape(rows, length), expected.T)


@pytest.mark.parametrize("name", TYPES)
def test_tiles_are_transposed(lib: ctypes.CDLL, name: str) -> None:
    size = np.dtype(TYPES[name]).itemsize
    for rows, apart in SHAPES:
        for columns in {LINE // size, LINE // size - 1, 1}:
            step = columns + apart // size
            memory = GuardedMemory(1 << 20)
            source = memory.tail((rows - 1) * step + columns, TYPES[name])
            source[:] = whole_numbers(TYPES[name], source.size)
            out = np.zeros((LINE // size, MOST_ROWS), TYPES[name])
            address = ctypes.c_void_p(memory.base + (1 << 20) - source.nbytes)
            sizes = (ctypes.c_int64(n) for n in (step, rows, columns))
            getattr(lib, f"turn_{name}")(pointer(out), ctypes.c_int64(MOST_ROWS), address, *sizes)
            expected = np.stack([source[r * step : r * step + columns] for r in range(rows)], 1)
            np.testing.assert_array_equal(out[:columns, :rows], expected)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_rows_are_moved(lib: ctypes.CDLL, name: str, streams: bool) -> None:
    size = np.dtype(TYPES[name]).itemsize
    for n in {0, 1, 2, 3, 7, LINE // size, LINE // size + 1, 2 * LINE // size - 1, 200}:
        memory = GuardedMemory(4096)
        source = memory.tail(n, TYPES[name])
        source[:] = whole_numbers(TYPES[name], n)
        first = memory.base + 4096 - source.nbytes
        for form, place, expected in (("row", first, source), ("reversed", first + (n - 1) * size, source[::-1])):
            room = np.zeros(4096 // size, TYPES[name])
            start = -(room.ctypes.data // size) % (LINE // size)
            out = room[start : start + n]
            address = ctypes.c_void_p(room.ctypes.data + start * size)
            getattr(lib, f"{form}_{name}")(address, ctypes.c_void_p(place), ctypes.c_int64(n), streams)
            np.testing.assert_array_equal(out, expected)
            assert not room[start + n :].any()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 4), (5, 9), (2, 3), (1, 14)])
def test_every_block_has_its_place(lib: ctypes.CDLL, rows: int, columns: int) -> None:
    found = set()
    for number in range(rows * columns):
        at = np.zeros(2, np.int64)
        lib.place(ctypes.c_int64(number), ctypes.c_int64(rows), ctypes.c_int64(columns), pointer(at))
        found.add((int(at[0]), int(at[1])))
    assert found == {(r, c) for r in range(rows) for c in range(columns)}
