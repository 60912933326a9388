"""Compiles C++ over the kernels' headers for the ISA levels of this CPU; measures errors in units in the last place."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.compiler.codegen.cpu.machine_header import MACHINE, render_machine

from ..helpers.libraries import compiled

ROOT = Path(__file__).resolve().parents[2]
#: of "kernels/..." and of "mycc/abi.h"
INCLUDES = (f"-I{ROOT}", f"-I{ROOT / 'runtime' / 'include'}")
FLAGS = "-std=c++17 -O2 -fno-exceptions -fno-rtti -fno-math-errno -fno-trapping-math -fwrapv -ffp-contract=off"
WARNINGS = "-Wall -Wextra -Werror -Wno-psabi"
LEVELS = {
    "x86-64": {"sse2"},
    "x86-64-v2": {"sse4_2", "popcnt"},
    "x86-64-v3": {"avx2", "fma", "f16c"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
}
LANES = {"x86-64": 4, "x86-64-v2": 4, "x86-64-v3": 8, "x86-64-v4": 16}
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]


def cpu_levels() -> list[str]:
    """The ISA levels that this CPU runs; on another architecture the compiler's own ("native")."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return [isa for isa, needed in LEVELS.items() if needed <= flags] or ["native"]


def builds() -> list[str]:
    """Names of all builds to test: compiler:isa."""
    return [f"{compiler}:{isa}" for compiler in COMPILERS for isa in cpu_levels()]


def best_builds() -> list[Any]:
    """All builds as parameters of a test: those for other levels than the best one of this CPU are slow."""
    best = cpu_levels()[-1]
    return [pytest.param(b, marks=[] if b.endswith(f":{best}") else [pytest.mark.slow]) for b in builds()]


#: as compiler/machine/targets.py has it
NO_MMX = ["-mno-mmx"] if platform.machine() == "x86_64" else []


def numbers(isa: str) -> dict[str, str]:
    """The header of the machine's numbers, by its name: those of the next level where one has no row."""
    return {MACHINE: render_machine({"x86-64": "x86-64-v2", "native": "aarch64", "armv8-a": "aarch64"}.get(isa, isa))}


@functools.cache
def library(source: str, build: str) -> ctypes.CDLL:
    """The C++ source compiled as a shared library, warnings as errors."""
    compiler, isa = build.split(":")
    command = [compiler, *FLAGS.split(), *WARNINGS.split(), f"-march={isa}", *NO_MMX, *INCLUDES, "-shared", "-fPIC"]
    with tempfile.TemporaryDirectory(prefix="mycc-vec-") as name:
        return ctypes.CDLL(str(compiled(command, source, numbers(isa), Path(name) / "test.so")))


class GuardedMemory:
    """Memory whose last byte is followed by a page that must not be touched."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self.pages = -(-size // page)
        self.map = mmap.mmap(-1, (self.pages + 1) * page)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(self.base + self.pages * page)
        assert libc.mprotect(guard, ctypes.c_size_t(page), 0) == 0

    @property
    def end(self) -> ctypes.c_void_p:
        """Where the guard begins."""
        return ctypes.c_void_p(self.base + self.pages * mmap.PAGESIZE)

    def tail(self, count: int, dtype: np.dtype) -> np.ndarray:
        """An array of `count` elements that ends where the guard begins."""
        dtype = np.dtype(dtype)
        offset = self.pages * mmap.PAGESIZE - count * dtype.itemsize
        return np.frombuffer(self.map, dtype=dtype, count=count, offset=offset)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def whole_numbers(dtype: type[np.generic], count: int) -> np.ndarray:
    """Numbers from 1 to 199, which every type holds: [count]."""
    return np.random.default_rng(3).integers(1, 200, count).astype(dtype)


def ulps(got: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Distance of float32 results from float64 references, in float32 units in the last place of the reference.

    Infinite where one is NaN and the other is not, or where one is infinite and the other is far from overflow.
    """
    largest = float(np.finfo(np.float32).max)
    with np.errstate(all="ignore"):
        magnitude = np.clip(np.abs(reference), 2.0**-126, largest)
        magnitude = np.where(np.isnan(magnitude), 1.0, magnitude)
        unit = np.exp2(np.floor(np.log2(magnitude)) - 23)
        capped = np.clip(got.astype(np.float64), -largest * 2, largest * 2)
        wanted = np.clip(reference, -largest * 2, largest * 2)
        # Beyond the largest number, infinity and the largest number are both within rounding.
        overflow = (np.abs(reference) > largest) & (np.abs(capped) >= largest) & (np.sign(capped) == np.sign(reference))
        distance = np.where(overflow, 0.0, np.abs(capped - wanted) / unit)
        both_nan = np.isnan(got) & np.isnan(reference)
        one_nan = np.isnan(got) != np.isnan(reference)
    return np.where(both_nan, 0.0, np.where(one_nan, np.inf, distance))


def window(what: str, build: str, bad: int, operands: list[np.ndarray], got: np.ndarray, want: np.ndarray) -> str:
    """The elements around a wrong one, a line each, with its lane marked."""
    lanes = LANES.get(build.split(":")[1], 4)
    lines = [f"{what}, {build}: element {bad}, lane {bad % lanes} of {lanes}"]
    for i in range(max(0, bad - 3), min(len(got), bad + 4)):
        given = ", ".join(repr(o[i].item()) for o in operands)
        mark = ">" if i == bad else " "
        lines.append(f"{mark} [{i}] ({given}) -> {got[i].item()!r}, expected {want[i].item()!r}")
    return "\n".join(lines)
