"""A host for a package's compiled code in Python: runs an entry point with a memory of its own for every buffer, so
that after the run all intermediate tensors can be looked at. One thread; for the CPU's code (mycc/abi.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...runtime.archive import Archive
from ...runtime.errors import CompileError, RunError
from ...runtime.native import ABI_VERSION, code_file
from ...runtime.tensorfile import parse_header

__all__ = ["Buffers", "run_entry"]

ALIGNMENT = 64

Memory = Callable[[int], np.ndarray]

_Body = CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_int32)
_ParallelFor = CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_void_p, c_void_p)
_Scratch = CFUNCTYPE(c_void_p, c_void_p, c_int32, c_size_t)
_Fail = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
_Trace = CFUNCTYPE(None, c_void_p, c_int32)


class _Host(Structure):
    """mycc_host."""

    _fields_ = [
        ("ctx", c_void_p),
        ("parallel_for", _ParallelFor),
        ("scratch", _Scratch),
        ("fail", _Fail),
        ("trace", _Trace),
        ("max_workers", c_int32),
        ("launch", c_void_p),
        ("tensor_map", c_void_p),
        ("define", c_void_p),
        ("fetch", c_void_p),
    ]


class _Call(Structure):
    """mycc_call."""

    _fields_ = [
        ("host", POINTER(_Host)),
        ("weights", c_void_p),
        ("arena", c_void_p),
        ("offsets", POINTER(c_int64)),
        ("inputs", POINTER(c_void_p)),
        ("outputs", POINTER(c_void_p)),
        ("symbols", POINTER(c_int64)),
        ("zeros", c_void_p),
        ("status", c_void_p),
        ("buffers", POINTER(c_void_p)),
        ("seed", c_uint64),
        ("state", POINTER(c_void_p)),
        ("blocks", c_int64),
    ]


_Sizes = CFUNCTYPE(None, POINTER(c_int64), POINTER(c_int64))


class _Entry(Structure):
    """mycc_entry."""

    _fields_ = [
        ("name", c_char_p),
        ("n_inputs", c_int32),
        ("n_outputs", c_int32),
        ("n_symbols", c_int32),
        ("n_buffers", c_int32),
        ("n_kernels", c_int32),
        ("buffers", c_void_p),
        ("input_dims", _Sizes),
        ("output_dims", _Sizes),
        ("buffer_sizes", _Sizes),
        ("static_offsets", c_void_p),
        ("static_arena_size", c_int64),
        ("run", CFUNCTYPE(None, POINTER(_Call))),
        ("kernel_names", POINTER(c_char_p)),
    ]


class _Computed(Structure):
    """mycc_computed."""

    _fields_ = [("n_sizes", c_int32), ("sizes", c_void_p), ("buffers", c_void_p), ("outputs", c_void_p)]


class _Program(Structure):
    """mycc_program."""

    _fields_ = [
        ("abi_version", c_uint32),
        ("n_entries", c_int32),
        ("entries", POINTER(_Entry)),
        ("target", c_char_p),
        ("gpu", c_void_p),
        ("computed", POINTER(_Computed)),
        ("n_state", c_int32),
        ("random", c_void_p),
        ("fetches", c_void_p),
    ]


@dataclass(frozen=True)
class Buffers:
    """All memory of a run, as bytes: the arena's buffers in the order of the memory plan, the outputs, and what buffers
    held before a kernel that was asked for, by kernel and buffer."""

    arena: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    before: Mapping[tuple[int, int], np.ndarray]


def _aligned(size: int) -> np.ndarray:
    """Bytes at an aligned address, filled with ones: no kernel may count on zeros."""
    memory = np.full(size + ALIGNMENT, 0xFF, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def run_entry(
    archive: Archive,
    row: Mapping[str, Any],
    index: int,
    inputs: Sequence[torch.Tensor],
    symbols: Sequence[int],
    output_bytes: Sequence[int],
    before: Collection[tuple[int, int]] = (),
    workers: int = 1,
    memory: Memory = _aligned,
) -> Buffers:
    """Runs entry point `index` with the code of the target in `row` (of the manifest).

    Args:
        inputs: dense tensors in the order of the signature.
        symbols: values of the entry point's size symbols, in their order.
        output_bytes: of each output.
        before: kernels and buffers of the arena: copies the buffer as it is before the kernel runs.
        workers: as many as the code divides its work for; they take turns.
        memory: gives so many bytes, at a multiple of 64, for a buffer, input or output, and for each use of scratch
            memory; by default filled with ones.

    Raises:
        RunError: the run failed, as it says itself.
        CompileError: the entry point has state or finds sizes as it runs, which this host does not know.
    """
    library = ctypes.CDLL(code_file(archive.read(row["library"]), "model.so"))
    library.mycc_program_get.restype = POINTER(_Program)
    program = library.mycc_program_get().contents
    if program.abi_version != ABI_VERSION:
        raise CompileError(
            f"the package's code has version {program.abi_version} of the interface, this mycc {ABI_VERSION}",
            hint="Compile the model again.",
        )
    if program.n_state or (program.computed and program.computed[index].n_sizes):
        raise CompileError("looking into a run is not possible for models with state or with sizes that the run finds")
    weights = archive.read(archive.manifest["weights"]["member"])
    run = _Run(program.entries[index], _address(weights) + parse_header(weights)[2], workers, memory)
    return run.run(inputs, symbols, output_bytes, before)


class _Run:
    """One run, with the callbacks that the compiled code needs."""

    def __init__(self, entry: _Entry, weights: int, workers: int, memory: Memory) -> None:
        self.entry, self.weights, self.workers, self.memory = entry, weights, workers, memory
        self.failures: list[str] = []
        self.scratch: dict[int, np.ndarray] = {}
        self.tell: Callable[[int], None] = lambda kernel: None  # of every kernel before it runs
        callbacks = (_ParallelFor(self._parallel_for), _Scratch(self._scratch), _Fail(self._fail))
        self.host = _Host(None, *callbacks, _Trace(self._trace), workers, None, None, None, None)

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        symbols: Sequence[int],
        output_bytes: Sequence[int],
        before: Collection[tuple[int, int]],
    ) -> Buffers:
        entry = self.entry
        values = (c_int64 * max(1, len(symbols)))(*symbols)
        arena = [self.memory(size) for size in self._sizes(entry.buffer_sizes, entry.n_buffers, values)]
        # every buffer at a place of its own: offsets from the first
        base = min((a.ctypes.data for a in arena), default=0)
        offsets = (c_int64 * max(1, len(arena)))(*(a.ctypes.data - base for a in arena))
        dense = [self._copy(t) for t in inputs]
        outputs = [self.memory(size) for size in output_bytes]
        call = _Call(
            ctypes.pointer(self.host), self.weights, base, offsets, _pointers(dense), _pointers(outputs), values,
            None, None, None, 0, None,
        )  # fmt: skip
        kept: dict[tuple[int, int], np.ndarray] = {}

        def keep(kernel: int) -> None:
            kept.update({(k, slot): arena[slot].copy() for k, slot in before if k == kernel})

        self.tell = keep
        entry.run(ctypes.byref(call))
        if self.failures:
            raise RunError(self.failures[0])
        return Buffers(tuple(arena), tuple(outputs), kept)

    @staticmethod
    def _sizes(function: Any, count: int, values: Any) -> list[int]:
        sizes = (c_int64 * max(1, count))()
        function(values, sizes)
        return list(sizes[:count])

    def _parallel_for(self, _: Any, n: int, grain: int, body: int, argument: int) -> None:
        run = _Body(body)
        for turn, begin in enumerate(range(0, n, grain)):
            run(argument, begin, min(n, begin + grain), turn % self.workers)

    def _scratch(self, _: Any, worker: int, size: int) -> int:
        self.scratch[worker] = self.memory(size)  # another one each time: nothing may count on what it held
        return int(self.scratch[worker].ctypes.data)

    def _copy(self, tensor: torch.Tensor) -> np.ndarray:
        flat = tensor.detach().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
        copy = self.memory(data.size)
        copy[:] = data
        return copy

    def _trace(self, _: Any, kernel: int) -> None:
        self.tell(kernel)

    def _fail(self, _: Any, code: int, text: bytes | None) -> None:
        self.failures.append((text or b"the run failed").decode("utf-8", "replace"))


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


def _address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)
