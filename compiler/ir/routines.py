"""Routines as nodes of the loop IR: C++ functions on blocks of memory, and kernels of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .buffers import Buffer, Layout
from .index import Index
from .nodes import Node


@dataclass(frozen=True)
class Blocks:
    """A dense operand of a routine: block i begins at element i * stride."""

    buffer: Buffer
    stride: Index


@dataclass(frozen=True, eq=False)
class Routine(Node):
    """For each of `count` blocks: a C++ function of lower/core/routines.py on the block's inputs, outputs and sizes."""

    function: str
    count: Index
    inputs: tuple[Blocks, ...]
    outputs: tuple[Blocks, ...]
    sizes: tuple[Index, ...]

    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads, each once."""
        return tuple(dict.fromkeys(b.buffer for b in self.inputs))

    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that it writes."""
        return tuple(b.buffer for b in self.outputs)


@dataclass(frozen=True)
class CppSource:
    """A C++ function of the user's (mycc/custom.h) and the translation unit that defines it."""

    function: str
    text: str


@dataclass(frozen=True)
class TritonSource:
    """A Triton kernel of the user's: its text from `def` on, its parameters, and its launch.

    arguments: of parameters that are no constants: ("tensor", position among outputs and inputs), ("size", value),
    ("int", value; of 32 bits where that is enough) or ("number", a float or a bool). head: what stands in front of the
    kernel: definitions that it needs.
    """

    function: str
    text: str
    parameters: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    arguments: tuple[tuple[str, int | float | bool | Index], ...]
    grid: tuple[Index, ...]
    num_warps: int
    num_stages: int
    head: str = ""
    num_ctas: int = 1
    maxnreg: int | None = None


@dataclass(frozen=True, eq=False)
class Custom(Routine):
    """A kernel of the user's on whole tensors. layouts: of the outputs, then of the inputs."""

    source: CppSource | TritonSource
    layouts: tuple[Layout, ...]
    numbers: tuple[int | float | Index, ...]
