"""kernels/loops/write_combining.h: rows are written in whole lines; nothing beside the rows of a task is touched."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest

from .harness import GuardedMemory, best_builds, library

SOURCE = (Path(__file__).parent / "lines_library.cpp").read_text()
TYPES = {"f64": np.float64, "f32": np.float32, "u16": np.uint16, "u8": np.uint8}
LINE = 64
#: rows of a result and their elements: less than a line in all, no whole lines, whole ones, more than is gathered
SHAPES = [(1, 3), (5, 1), (200, 7), (97, 58), (64, 64), (9, 1025), (3, 9000)]


@pytest.fixture(params=best_builds())
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(SOURCE, request.param)


@pytest.mark.parametrize("part", [1 << 20, 58, 7], ids=["whole", "by_rows", "by_odd_parts"])
@pytest.mark.parametrize("name", TYPES)
def test_rows_are_put_together(lib: ctypes.CDLL, name: str, part: int) -> None:
    """Tasks one after the other, from results that begin at a line, in one, and that end where memory does."""
    dtype = np.dtype(TYPES[name])
    getattr(lib, f"gathered_{name}").restype = ctypes.c_int64
    more = getattr(lib, f"gathered_{name}")()
    for rows, length in SHAPES:
        room = GuardedMemory((length + more) * dtype.itemsize)
        count = rows * length
        memory = GuardedMemory((count + 2 * LINE) * dtype.itemsize)
        for behind in (0, 1, LINE // dtype.itemsize, 5):
            whole = np.frombuffer(memory.map, dtype, memory.pages * mmap.PAGESIZE // dtype.itemsize)
            whole[:] = 77
            first = whole.size - behind - count
            result = ctypes.c_void_p(memory.base + first * dtype.itemsize)
            for begin, end in ((0, rows // 3), (rows // 3, rows // 2), (rows // 2, rows)):
                sizes = (ctypes.c_int64(n) for n in (begin, end, length, part))
                getattr(lib, f"rows_{name}")(result, *sizes, ctypes.c_void_p(room.base))
            assert np.array_equal(whole[first : first + count], np.arange(count).astype(dtype))
            assert np.all(whole[:first] == 77)
            assert np.all(whole[first + count :] == 77)
