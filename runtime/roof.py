"""What this machine can do at most, measured: multiply-adds a second, and bytes a second by size of the working set.

The loops are those of runtime/src/cpu/roof.cpp, one thread each; all threads run them at once.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import platform
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ROOF_LIBRARY", "MemoryReader", "Roof", "machine_facts", "measure_gflops", "measure_roof"]

ROOF_LIBRARY = "libmycc_roof.so"
#: bytes of all threads together: within the second cache, within the last one, in memory
WORKING_SETS = (256 << 10, 4 << 20, 256 << 20)
LINE = 64  # bytes of memory that a thread counts in

Team = tuple[int, int, int]  #: address of the lines, threads, which thread this is


@dataclass(frozen=True)
class Roof:
    """The limits of `threads` threads that work at once.

    Attributes:
        gflops: multiply-adds of float32 in registers, two operations each, in GFLOP/s.
        read, copy: (bytes of the working set, GB/s), the smallest set first. A copied byte counts twice: it is read and
            written.
    """

    threads: int
    gflops: float
    read: tuple[tuple[int, float], ...]
    copy: tuple[tuple[int, float], ...]

    @property
    def memory(self) -> float:
        """GB/s of reading what no cache holds."""
        return self.read[-1][1]

    def seconds(self, flops: float, read: float, written: float, weights: float, all_weights: float) -> float:
        """The least time of a kernel: that of its arithmetic or that of its bytes, whichever is longer.

        flops: its operations; read, written: bytes of activations, which come from the cache that holds them all;
        weights: bytes of constants, which come from where all constants of the model (`all_weights`) fit.
        """
        moved = read + written
        memory = weights / _at(self.read, all_weights) + moved / _at(self.copy if written else self.read, moved)
        return max(flops / self.gflops, memory) / 1e9

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _at(curve: tuple[tuple[int, float], ...], size: float) -> float:
    """GB/s for a working set: between two measured sizes by the logarithm of the size."""
    if size <= curve[0][0]:
        return curve[0][1]
    for (low, slow), (high, fast) in itertools.pairwise(curve):
        if size <= high:
            part = math.log(size / low) / math.log(high / low)
            return slow + part * (fast - slow)
    return curve[-1][1]


def measure_roof(threads: int = 1, seconds: float = 0.1) -> Roof | None:
    """Measures this machine with `threads` threads, about `seconds` for each of its seven numbers.

    None where mycc was installed without its measuring library.
    """
    library = _library()
    if library is None:
        return None
    gflops = _multiply_adds(library, threads, seconds)
    memory = [_buffers(threads, size) for size in WORKING_SETS]
    read = [_together(threads, partial(_read, library, seconds, buffers)) for buffers in memory]
    copy = [_together(threads, partial(_copy, library, seconds, buffers)) for buffers in memory]
    sizes = WORKING_SETS
    return Roof(threads, gflops, tuple(zip(sizes, read, strict=True)), tuple(zip(sizes, copy, strict=True)))


def measure_gflops(threads: int = 1, seconds: float = 0.05) -> float | None:
    """Multiply-adds that the cores give just now, in GFLOP/s over all of `seconds`: beside what is timed.

    Less than Roof.gflops where the clock is lower, or others use the cores too. None without the measuring library.
    """
    library = _library()
    return None if library is None else _together(threads, lambda team: library.mycc_roof_fma_now(*team, seconds))


class MemoryReader:
    """Measures the bandwidth of memory again and again: on a shared machine it changes."""

    def __init__(self, threads: int) -> None:
        self._threads, self._buffers = threads, _buffers(threads, WORKING_SETS[-1])

    def measure(self, seconds: float) -> float | None:
        """GB/s of all threads in the best window of about `seconds`; None without the measuring library."""
        library = _library()
        return None if library is None else _together(self._threads, partial(_read, library, seconds, self._buffers))


def machine_facts() -> dict[str, Any]:
    """Of the machine, for people: cpu, cores (those this process may use), system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": _cpu_name(), "cores": cores, "system": platform.platform()}


def _cpu_name() -> str:
    try:
        rows = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (row.partition(":")[2].strip() for row in rows if row.startswith("model name"))
    return next(names, platform.machine())


def _buffers(threads: int, size: int) -> list[Any]:
    return [np.ones(size // 4 // threads, np.float32) for _ in range(threads)]


def _multiply_adds(library: Any, threads: int, seconds: float) -> float:
    return _together(threads, lambda team: library.mycc_roof_fma(*team, seconds))


def _read(library: Any, seconds: float, buffers: list[Any], team: Team) -> float:
    buffer = buffers[team[2]]
    return float(library.mycc_roof_read(*team, buffer.ctypes, buffer.size, seconds))


def _copy(library: Any, seconds: float, buffers: list[Any], team: Team) -> float:
    buffer = buffers[team[2]]
    half = buffer.size // 2
    return float(library.mycc_roof_copy(*team, buffer[half:].ctypes, buffer.ctypes, half, seconds))


def _together(threads: int, measure: Callable[[Team], float]) -> float:
    """What all threads reach at the same time."""
    memory = np.zeros(LINE * (threads + 1), np.uint8)
    lines = memory.ctypes.data + -memory.ctypes.data % LINE
    ready = threading.Barrier(threads)

    def work(i: int) -> float:
        ready.wait()
        return measure((lines, threads, i))

    others = [threading.Thread(target=work, args=(i,)) for i in range(1, threads)]
    for thread in others:
        thread.start()
    found = work(0)
    for thread in others:
        thread.join()
    return found


_loaded: list[Any] = []  # the library of this process, once looked for


def _library() -> Any:
    if not _loaded:
        _loaded.append(_open())
    return _loaded[0]


def _open() -> Any:
    from .native import installed_file

    path = installed_file(ROOF_LIBRARY)
    if path is None:
        return None
    library = ctypes.CDLL(path)
    pointer, count, seconds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    team = (pointer, ctypes.c_int32, ctypes.c_int32)
    for name, arguments in (
        ("mycc_roof_fma", (*team, seconds)),
        ("mycc_roof_fma_now", (*team, seconds)),
        ("mycc_roof_read", (*team, pointer, count, seconds)),
        ("mycc_roof_copy", (*team, pointer, pointer, count, seconds)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = seconds, list(arguments)
    return library
