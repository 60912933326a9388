"""The plan of a CPU kernel of products, convolutions or attention: algorithm, packing, register tiles, blocking.

The rows of a block and the tasks of a run follow at run time from the sizes and the number of threads; the plan says
what they are cut by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ..buffers import Buffer
from ..index import Index
from .loop import Prefetch


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
class Rows:
    """Rows of memory from an element on: of `buffer` from `index` on, `step` elements apart; 0: all are the same."""

    buffer: Buffer
    index: Index
    step: Index

    def __str__(self) -> str:
        return f"{self.buffer.name}[{self.index}] by {self.step}"


@dataclass(frozen=True)
class Added:
    """out = (sum + bias) + residual, no less than `low` and no more than `high`; NaN stays. None: not added."""

    out: Rows
    bias: Rows | None
    residual: Rows | None
    low: float
    high: float

    def __str__(self) -> str:
        parts = ["sum", *(str(r.buffer.name) for r in (self.bias, self.residual) if r is not None)]
        low = f" from {self.low:g}" if math.isfinite(self.low) else ""
        high = f" to {self.high:g}" if math.isfinite(self.high) else ""
        return f"{self.out} = {' + '.join(parts)}{low}{high}"


@dataclass(frozen=True)
class EpiloguePlan:
    """How tiles finish their elements; indices are over the loops z, m and column of ir.rewrite.epilogues.

    adds: the epilogue only adds and bounds, which tiles do while the sums are in registers. results: the rows that
    tiles fetch before they write there; None: none. prefetch: what is fetched of operands before it is read.
    """

    adds: Added | None = None
    results: Rows | None = None
    prefetch: tuple[Prefetch, ...] = ()


@dataclass(frozen=True)
class MatrixPlan:
    """How a product, a convolution or an attention runs on CPUs.

    algorithm: "gemm", "gemm-glu" (columns and their gates together), "gemm-integer" (both operands of bytes),
    "gemm-mixed" (integer weights become floats in registers); of convolutions "depthwise", "direct" or another of
    ir.structured.Algorithm; "chain"; "attention", "attention-gradient". packing: of the operand that all rows share.
    tiles: for each level, what registers hold. blocking: None where the algorithm has none. streamed: the weights are
    read once, as fast as memory gives them, so the kernel is told how many bytes the run reads in all. epilogue: how
    tiles finish their elements. tasks: the axes along which threads share the kernel, the outermost first.
    skips_hidden: attention of many rows leaves out blocks of keys that its mask hides from all of them. links: of a
    chain, the plan of each convolution.
    """

    algorithm: str = ""
    packing: Packing = Packing.COMPILE_TIME
    tiles: tuple[RegisterTile, ...] = ()
    blocking: Blocking | None = None
    streamed: bool = False
    epilogue: EpiloguePlan = EpiloguePlan()
    tasks: tuple[str, ...] = ()
    skips_hidden: bool = False
    links: tuple[MatrixPlan, ...] = ()
