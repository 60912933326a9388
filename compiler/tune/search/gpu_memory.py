"""A model's memory on the GPU of this machine while its kernels are tuned: weights, example inputs, results, arena."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ...codegen.cuda.kernel import (
    BufferArg,
    Launch,
    LaunchArg,
    LaunchArgument,
    NumberArg,
    SizeArg,
    StatusArg,
    WorkArg,
    ZerosArg,
)
from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES, to_torch
from ...model.graph import ModelGraph
from ...schedule import Schedule
from ...schedule.memory.plan import ALIGNMENT, best_placement
from ...verify.check_inputs import example_sizes
from ...weights.collect import Weights
from ...weights.safetensors import layout
from .gpu_driver import Gpu

__all__ = ["EntryMemory", "upload_weights"]

#: bytes of scratch that candidates may share, and of counters; a launch that asks for more is not tried
WORK, ZEROS = 256 << 20, 1 << 20
#: elements of an output that are compared
COMPARED = 1 << 20
_FORMATS = {"i1": "?", "i8": "b", "u8": "B", "i16": "h", "i32": "i", "u32": "I", "i64": "q", "fp32": "f", "fp64": "d"}


def upload_weights(gpu: Gpu, weights: Weights) -> int:
    """The address of the weights' data."""
    placed = layout(weights.tensors)
    base = gpu.allocate(placed.size)
    for tensor, offset in zip(weights.tensors, placed.offsets, strict=True):
        gpu.write(base + offset, bytes(tensor.data()))
    return base


@dataclass(frozen=True)
class EntryMemory:
    """Where the buffers of an entry point lie, at the sizes of its example."""

    sizes: Mapping[str, int]
    places: Mapping[Buffer, int]
    outputs: tuple[Buffer, ...]
    weights: Mapping[Buffer, int]
    work: int
    zeros: int
    status: int

    @classmethod
    def of(cls, gpu: Gpu, graph: ModelGraph, schedule: Schedule, weights: Weights, base: int) -> EntryMemory:
        """Allocates and fills it; base: the address of the weights."""
        sizes = example_sizes(graph)
        program, memory = schedule.program, schedule.memory
        places = {}
        for buffer, example in zip(program.inputs, graph.examples, strict=True):
            raw = example.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            places[buffer] = gpu.allocate(len(raw))
            gpu.write(places[buffer], raw)
        for buffer in program.outputs:
            places[buffer] = gpu.allocate(buffer.size.evaluate(sizes) * DTYPES[buffer.dtype].size)
        bytes_of = [-(-t.bytes.evaluate(sizes) // ALIGNMENT) * ALIGNMENT for t in memory.lifetimes]
        offsets: Sequence[int] | None = memory.offsets
        arena = memory.arena
        if offsets is None:
            offsets, arena = best_placement([(t.first, t.last) for t in memory.lifetimes], bytes_of)
        start = gpu.allocate(arena)
        places |= {t.buffer: start + offset for t, offset in zip(memory.lifetimes, offsets, strict=True)}
        consts = {buffer: base + offset for buffer, offset in weights.offsets.items()}
        return cls(
            sizes, places, tuple(program.outputs), consts, gpu.allocate(WORK), gpu.allocate(ZEROS), gpu.allocate(16)
        )

    def results(self, gpu: Gpu) -> list[torch.Tensor]:
        """The first elements of each floating-point output."""
        found = []
        for buffer in self.outputs:
            dtype = to_torch(buffer.dtype)
            count = min(buffer.size.evaluate(self.sizes), COMPARED)
            if dtype.is_floating_point and count:
                raw = gpu.read(self.places[buffer], count * DTYPES[buffer.dtype].size)
                found.append(torch.frombuffer(raw, dtype=dtype).double())
        return found

    def fits(self, launch: Launch) -> bool:
        """Whether there is scratch memory enough for it."""
        most = {WorkArg: WORK, ZerosArg: ZEROS}
        asked = (a for a in launch.args if isinstance(a, (WorkArg, ZerosArg)))
        return all(a.bytes.evaluate(self.sizes) <= most[type(a)] for a in asked)

    def grid(self, launch: Launch) -> tuple[int, int, int]:
        x, y, z = (g.evaluate(self.sizes) for g in launch.grid)
        return x, y, z

    def argument(self, arg: LaunchArgument, kind: str, number: int) -> bytes:
        """The bytes of a parameter of type `kind`; number: of the launch, from 1."""
        match arg:
            case BufferArg(buffer, offset):
                base = self.weights[buffer] if buffer.kind == "const" else self.places[buffer]
                return struct.pack("Q", base + offset.evaluate(self.sizes) * DTYPES[buffer.dtype].size)
            case SizeArg(value):
                return struct.pack(_FORMATS[kind], value.evaluate(self.sizes))
            case NumberArg(value):
                return struct.pack("?" if kind == "i1" else "f", value)
            case WorkArg():
                return struct.pack("Q", self.work)
            case ZerosArg():
                return struct.pack("Q", self.zeros)
            case StatusArg():
                return struct.pack("Q", self.status)
            case LaunchArg():
                return struct.pack("i", number)
        raise TypeError(type(arg).__name__)
