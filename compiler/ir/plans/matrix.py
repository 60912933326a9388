"""The plan of a CPU kernel of products, convolutions or attention: algorithm, packing, register tiles, blocking.

The rows of a block and the tasks of a run follow at run time from the sizes and the number of threads; the plan says
what they are cut by.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Packing(Enum):
    """When the operand that all rows share is put into panels of 16 columns, in the order in which tiles read it."""

    COMPILE_TIME = "at compile time"
    RUN_TIME = "at run time"


@dataclass(frozen=True)
class GemmBlocking:
    """How a product is cut.

    depth: longest block of k. together: blocks of k of a pass over the rows, where there are no more: else the sums
    wait in the second cache between them. group_bytes: of a block of k of a group of panels, which stays in the first
    cache. block_bytes: of a block of k of the rows of a task, which stays in the second cache.
    """

    depth: int
    together: int
    group_bytes: int
    block_bytes: int


@dataclass(frozen=True)
class ConvBlocking:
    """How a direct convolution is cut.

    depth: longest block of taps times channels, about. panel_bytes: weights of such a block of a group of panels, which
    stay in the second cache. pixels: of the output in a block, about.
    """

    depth: int
    panel_bytes: int
    pixels: int


@dataclass(frozen=True)
class AttentionBlocking:
    """How attention is cut. key_block: most keys of a block of the online softmax. chunk_floats: elements of the
    queries of a task, about: every task packs keys and values again."""

    key_block: int
    chunk_floats: int


Blocking: TypeAlias = GemmBlocking | ConvBlocking | AttentionBlocking


@dataclass(frozen=True)
class RegisterTile:
    """The largest register tile of a level of an instruction set: rows of the result, and columns."""

    level: str
    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.level} {self.rows}x{self.columns}"


@dataclass(frozen=True)
class MatrixPlan:
    """How a product, a convolution or an attention runs on CPUs.

    algorithm: "gemm", "gemm-glu" (columns and their gates together), "gemm-integer" (both operands of bytes),
    "gemm-mixed" (integer weights become floats in registers); of convolutions "depthwise", "direct" or another of
    ir.structured.Algorithm; "chain"; "attention", "attention-gradient". packing: of the operand that all rows share.
    tiles: for each level, what registers hold. blocking: None where the algorithm has none. streamed: the weights are
    read once, as fast as memory gives them, so the kernel is told how many bytes the run reads in all. in_registers:
    an epilogue that only adds and bounds works on the sums while they are in registers. skips_hidden: attention of many
    rows leaves out blocks of keys that its mask hides from all of them. links: of a chain, the plan of
    each convolution.
    """

    algorithm: str = ""
    packing: Packing = Packing.COMPILE_TIME
    tiles: tuple[RegisterTile, ...] = ()
    blocking: Blocking | None = None
    streamed: bool = False
    in_registers: bool = False
    skips_hidden: bool = False
    links: tuple[MatrixPlan, ...] = ()
