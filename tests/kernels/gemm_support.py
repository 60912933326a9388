"""Builds the test library of the GEMM and convolution kernels for an ISA level and calls it with numpy arrays."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.compiler.build.compile import COMPILE_FLAGS
from mycc.compiler.codegen.cpu.machine_header import render_machine
from mycc.compiler.codegen.cpu.micro import render_micro_kernels
from mycc.compiler.machine.targets import TARGETS, Target

from ..helpers.libraries import compiled

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]  # of "kernels/..."
INCLUDE = ROOT / "runtime" / "include"
INCLUDES = ("-I", str(INCLUDE), "-I", str(ROOT))
FLAGS = "-std=c++17 -O2 -fno-exceptions -fno-rtti -fno-math-errno -fno-trapping-math -ffp-contract=off".split()
WARNINGS = ["-Wno-psabi", "-Wall", "-Wextra", "-Werror"]
NEEDS = {
    "x86-64-v2": {"sse4_2", "popcnt"},
    "x86-64-v3": {"avx2", "fma", "bmi2"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
}
PANEL = 16


def cpu_levels() -> list[str]:
    """The ISA levels that this CPU runs."""
    text = Path("/proc/cpuinfo").read_text()
    flags = set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    return [isa for isa, needed in NEEDS.items() if needed <= flags]


def levels(fast: int) -> list[Any]:
    """The levels that this CPU runs as parameters of a test: but for the best `fast` of them it is slow."""
    found = cpu_levels()
    return [pytest.param(isa, marks=[pytest.mark.slow] if len(found) - i > fast else []) for i, isa in enumerate(found)]


def own_headers(isa: str) -> dict[str, str]:
    """The headers beside the project's that sources of this folder include: name -> text."""
    beside = {path.name: path.read_text() for path in HERE.glob("*.h")}
    return {**beside, "micro_kernels.h": render_micro_kernels(isa), "machine.h": render_machine(isa)}


def built(name: str, target: Target, into: Path, compiler: str = "g++") -> Path:
    """The kernels of a source of this folder, with the flags of a package for `target`; all names can be found.

    They are compiled once for the tests that call them and for those that read their code.
    """
    flags = [flag for flag in COMPILE_FLAGS if flag != "-fvisibility=hidden"]
    command = [compiler, *flags, *WARNINGS, *target.flags, *INCLUDES, "-shared"]
    return compiled(command, (HERE / name).read_text(), own_headers(target.isa), into, ("-pthread",))


def target_of(isa: str) -> Target:
    return next(target for target in TARGETS if target.isa == isa)


def library(isa: str) -> ctypes.CDLL:
    """The compiled test library for an ISA level."""
    loaded, error = _build(isa)
    assert loaded is not None, error
    return loaded


@functools.cache
def _build(isa: str) -> tuple[ctypes.CDLL | None, str]:
    """The library, or the compiler's words when it failed: once, not once per example."""
    with tempfile.TemporaryDirectory(prefix=f"mycc-gemm-{isa}-") as name:
        try:
            out = built("gemm_library.cpp", target_of(isa), Path(name) / "gemm.so")
        except AssertionError as error:
            return None, str(error)
        return ctypes.CDLL(str(out)), ""


@dataclass
class _Arguments:
    """Arguments in the order of the C++ struct: ints and float arrays (an array and an offset into it)."""

    def structure(self) -> ctypes.Structure:
        values = [getattr(self, field.name) for field in fields(self)]
        kinds = [ctypes.c_int64 if isinstance(v, int) else ctypes.c_void_p for v in values]
        names = [field.name for field in fields(self)]
        kind = type("Structure", (ctypes.Structure,), {"_fields_": list(zip(names, kinds, strict=True))})
        return kind(*[v if isinstance(v, int) else v.ctypes.data for v in values])


@dataclass
class Gemm(_Arguments):
    batch: int
    m: int
    n: int
    k: int
    a: np.ndarray
    a_batch: int
    a_row: int
    b: np.ndarray
    b_batch: int
    weight_bytes: int = 0
    b_panel: int = 0
    tile_rows: int = 0


def _run_sums(
    function: str, isa: str, values: Sequence[_Arguments | np.ndarray | int | float | None], out: np.ndarray,
    in_tiles: bool, threads: int,
) -> np.ndarray:  # fmt: skip
    """Calls a function of the test library whose tiles may add with a struct of these values, None being NULL."""
    fields: list[tuple[type, Any]] = []
    for value in values:
        if isinstance(value, _Arguments):
            structure = value.structure()
            fields.append((type(structure), structure))
        elif isinstance(value, float):
            fields.append((ctypes.c_float, value))
        elif isinstance(value, int):
            fields.append((ctypes.c_int64, value))
        else:
            fields.append((ctypes.c_void_p, None if value is None else value.ctypes.data))
    kind = type("Sums", (ctypes.Structure,), {"_fields_": [(f"f{i}", t) for i, (t, _) in enumerate(fields)]})
    getattr(library(isa), function)(
        ctypes.c_int(threads),
        ctypes.byref(kind(*[v for _, v in fields])),
        ctypes.c_void_p(out.ctypes.data),
        ctypes.c_int(in_tiles),
    )
    return out


@dataclass
class Sums:
    """A product with a bias and a residual, None where there is none; rows of the result are `gap` elements longer.

    high: results are bounded by 0 and it; below 0 they are not.
    """

    product: Gemm
    bias: np.ndarray | None
    residual: np.ndarray | None
    gap: int
    high: float = -1.0

    def run(self, isa: str, out: np.ndarray, in_tiles: bool, threads: int = 1) -> np.ndarray:
        """Writes the sums to out [m][n + gap], added by the tiles or by the epilogue behind them."""
        values = (self.product, self.bias, self.residual, self.gap, self.high)
        return _run_sums("test_gemm_adds", isa, values, out, in_tiles, threads)


@dataclass
class GemmUnpacked(_Arguments):
    batch0: int
    batch1: int
    m: int
    n: int
    k: int
    a: np.ndarray
    a_batch0: int
    a_batch1: int
    a_row: int
    b: np.ndarray
    b_batch0: int
    b_batch1: int
    b_k: int
    b_n: int


@dataclass
class Conv(_Arguments):
    batch: int
    in_h: int
    in_w: int
    in_c: int
    out_h: int
    out_w: int
    out_c: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    dilation_h: int
    dilation_w: int
    groups: int
    x: np.ndarray
    x_batch: int
    x_h: int
    x_w: int
    w: np.ndarray
    in_d: int = 1
    out_d: int = 1
    kernel_d: int = 1
    stride_d: int = 1
    pad_d: int = 0
    dilation_d: int = 1
    x_d: int = 0
    x_c: int = 1


@dataclass
class ConvSums:
    """A convolution with a bias and a residual, as Sums."""

    conv: Conv
    bias: np.ndarray | None
    residual: np.ndarray | None
    high: float = -1.0

    def run(self, isa: str, out: np.ndarray, in_tiles: bool, threads: int = 1) -> np.ndarray:
        """Writes the sums to `out`, added by the tiles or by the epilogue behind them."""
        values = (self.conv, self.bias, self.residual, self.high)
        return _run_sums("test_conv_adds", isa, values, out, in_tiles, threads)


@dataclass
class ConvChain(_Arguments):
    """Of a chain; a convolution that is missing has no input channels."""

    expand: Conv
    depthwise: Conv
    project: Conv

    def structure(self) -> ctypes.Structure:
        parts = [getattr(self, field.name).structure() for field in fields(self)]
        named = [(field.name, type(part)) for field, part in zip(fields(self), parts, strict=True)]
        return type("Chain", (ctypes.Structure,), {"_fields_": named})(*parts)


def call(isa: str, function: str, args: _Arguments, shape: tuple[int, ...], threads: int = 1) -> np.ndarray:
    """Runs `function` of the test library; asserts that every element was finished exactly once and in its place.

    threads < 0: the host has no scratch memory; nothing may be finished then.
    """
    out = np.full(shape, np.nan, np.float32)
    seen = np.zeros(shape, np.int32)
    run = getattr(library(isa), function)
    run.restype = ctypes.c_int64
    structure = args.structure()
    misplaced = run(
        ctypes.c_int(threads),
        ctypes.byref(structure),
        ctypes.c_void_p(out.ctypes.data),
        ctypes.c_void_p(seen.ctypes.data),
    )
    assert misplaced == 0, f"{misplaced} row segments outside the result"
    expected = 0 if threads < 0 else 1
    assert (seen == expected).all(), f"elements finished {np.unique(seen)} times, expected {expected}"
    return out


def busiest_share(isa: str, m: int, n: int, k: int, workers: int) -> int:
    """What the busiest of several workers gets of a product, in percent of an equal part."""
    run = library(isa).test_busiest_share
    run.restype = ctypes.c_int64
    return int(run(*(ctypes.c_int64(v) for v in (m, n, k, workers))))


def aligned(values: np.ndarray) -> np.ndarray:
    """A float32 copy whose data is aligned to 64 bytes."""
    raw = np.empty(values.size + 16, np.float32)
    start = -raw.ctypes.data % 64 // 4
    raw[start : start + values.size] = values.ravel()
    return raw[start : start + values.size].reshape(values.shape)


def pack_panels(b: np.ndarray) -> np.ndarray:
    """B (..., K, N) as panels (..., ceil(N / 16), K, 16), zero padded."""
    *lead, k, n = b.shape
    panels = -(-n // PANEL)
    padded = np.zeros((*lead, k, panels * PANEL), np.float32)
    padded[..., :n] = b
    return aligned(np.swapaxes(padded.reshape(*lead, k, panels, PANEL), -3, -2))
