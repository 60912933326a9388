"""Programs small enough to compile in a moment, against runtime/include/mycc/abi.h."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

EXP = """
#include "mycc/abi.h"
#include "sizes.h"
extern "C" float expf(float);

static void run(const mycc_call *call) {
  const float *x = (const float *)call->inputs[0];
  float *y = (float *)call->outputs[0];
  for (int64_t i = 0; i < call->symbols[0] * FACTOR; ++i) y[i] = expf(x[i]);
}
static const char *const names[] = {"exp"};
static const mycc_entry entry = {"forward", 1, 1, 1, 0, 1, nullptr, nullptr, nullptr, nullptr, nullptr, 0, run, names};
static const mycc_program program = {MYCC_ABI_VERSION, 1, &entry, "cpu"};
const mycc_program *mycc_program_get(void) { return &program; }
"""
SIZES = {"sizes.h": "#define FACTOR 1\n"}
EMPTY = '#include "mycc/abi.h"\nconst mycc_program *mycc_program_get(void) { return nullptr; }\n'


class Call(ctypes.Structure):
    """mycc_call"""

    _fields_ = [
        (name, ctypes.c_void_p) for name in ("host", "weights", "arena", "offsets", "inputs", "outputs", "symbols")
    ]


class Entry(ctypes.Structure):
    """mycc_entry"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        *[(name, ctypes.c_int32) for name in ("n_inputs", "n_outputs", "n_symbols", "n_buffers", "n_kernels")],
        *[
            (name, ctypes.c_void_p)
            for name in ("buffers", "input_dims", "output_dims", "buffer_sizes", "static_offsets")
        ],
        ("static_arena_size", ctypes.c_int64),
        ("run", ctypes.CFUNCTYPE(None, ctypes.POINTER(Call))),
        ("kernel_names", ctypes.c_void_p),
    ]


class Program(ctypes.Structure):
    """mycc_program"""

    _fields_ = [
        ("abi_version", ctypes.c_uint32),
        ("n_entries", ctypes.c_int32),
        ("entries", ctypes.POINTER(Entry)),
        ("target", ctypes.c_char_p),
    ]


def load(library: bytes) -> Program:
    """The program of a library."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        loaded = ctypes.CDLL(file.name, mode=os.RTLD_NOW)
    loaded.mycc_program_get.restype = ctypes.POINTER(Program)
    return loaded.mycc_program_get().contents


def call(program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], symbols: Sequence[int]) -> None:
    """Runs the first entry point; without a host and an arena, which these programs do not use."""
    ins = (ctypes.c_void_p * len(inputs))(*[array.ctypes.data for array in inputs])
    outs = (ctypes.c_void_p * len(outputs))(*[array.ctypes.data for array in outputs])
    sizes = (ctypes.c_int64 * len(symbols))(*symbols)
    address = ctypes.addressof
    program.entries[0].run(ctypes.byref(Call(None, None, None, None, address(ins), address(outs), address(sizes))))


def write_script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
