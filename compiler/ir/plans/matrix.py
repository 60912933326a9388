"""The plan of a CPU kernel of products, convolutions or attention: algorithm, packing, register tiles, blocking.

The rows of a block and the tasks follow at run time from the sizes and the number of threads. The plan gives the limits
that they follow from.
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
    """When the operand that all rows share is packed into panels of 16 columns, in the order in which tiles read it."""

    COMPILE_TIME = "at compile time"
    RUN_TIME = "at run time"


@dataclass(frozen=True)
class GemmBlocking:
    """How a product is blocked.

    depth: the largest block of k. together: how many blocks of k one pass over the rows may take; where a product has
    more, partial sums are kept in the second-level cache between passes. group_bytes: the size of one k block of a
    group of panels, which stays in the first-level cache. block_bytes: the size of one k block of a task's rows, which
    stays in the second-level cache.
    """

    depth: int
    together: int
    group_bytes: int
    block_bytes: int


@dataclass(frozen=True)
class ConvBlocking:
    """How a direct convolution is blocked.

    depth: about the largest block of taps times channels. panel_bytes: the size of the weights of such a block for a
    group of panels, which stay in the second-level cache. pixels: about how many outputs a block has.
    """

    depth: int
    panel_bytes: int
    pixels: int


@dataclass(frozen=True)
class AttentionBlocking:
    """How attention is blocked. key_block: the most keys in a block of the online softmax. chunk_floats: about how many
    elements the queries of a task have; each task packs keys and values for itself."""

    key_block: int
    chunk_floats: int


Blocking: TypeAlias = GemmBlocking | ConvBlocking | AttentionBlocking


@dataclass(frozen=True)
class RegisterTile:
    """The largest register tile of a level of an instruction set: rows of the result, and columns.

    from_rows: rows of a result from which on tiles are used, where the level multiplies fewer otherwise.
    """

    level: str
    rows: int
    columns: int
    from_rows: int = 1

    def __str__(self) -> str:
        least = f" from {self.from_rows} rows" if self.from_rows > 1 else ""
        return f"{self.level} {self.rows}x{self.columns}{least}"


@dataclass(frozen=True)
class Rows:
    """Rows of `buffer` that begin at `index` and are `step` elements apart; step 0: all rows are the same memory."""

    buffer: Buffer
    index: Index
    step: Index

    def __str__(self) -> str:
        return f"{self.buffer.name}[{self.index}] by {self.step}"


@dataclass(frozen=True)
class Added:
    """out = clamp((sum + bias) + residual, low, high), which keeps NaN. bias, residual: None where there is none."""

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

    adds: the epilogue only adds and clamps, and tiles do both while the sums are in registers. results: the rows of
    results that tiles prefetch before they write them; None: none. prefetch: what is prefetched of operands.
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
    tiles: the register tile of each level. blocking: None where the algorithm has none. streamed: the weights are read
    once at the bandwidth of memory, and the kernel gets the number of bytes that the run reads. epilogue: how tiles
    finish their elements. tasks: the axes that are divided among threads, the outermost first. skips_hidden: attention
    skips blocks of keys that its mask hides from all rows of a task. links: of a chain, the plan of each convolution.
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
