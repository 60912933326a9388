"""Kernels in pipeline_stages: each a row, or a block of columns, behind the one before it."""

from __future__ import annotations

from dataclasses import dataclass

from .kernel import TunedKernel
from .loops import CombinedRow, Lanes, LocalView, Loop
from .reductions import ReductionView


@dataclass(frozen=True)
class ColumnEnd:
    """What is stored for the columns of a block at the end of a phase; reductions: accumulators that it reads."""

    reductions: tuple[ReductionView, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ComingRows:
    """What a region reads of an operand: where it starts, the step between its rows, their elements, bytes of one."""

    name: str
    source: str
    step: str
    columns: int
    size: int


@dataclass(frozen=True)
class ComingRegion:
    """What a pipeline stage reads of memory in the next region; rows: the loops over blocks, at its first one."""

    rows: tuple[Loop, ...]
    operands: tuple[ComingRows, ...]


@dataclass(frozen=True)
class ColumnStage:
    """A part of the work on a block of columns: `lines` for a vector of a row, then into the reductions, then the
    ends."""

    number: int
    rows: tuple[Loop, ...]  # the loops over its blocks
    next: ComingRegion  # fetched meanwhile
    lines: tuple[str, ...]
    reductions: tuple[ReductionView, ...]
    ends: tuple[ColumnEnd, ...]


@dataclass(frozen=True)
class PipelinedColumnsKernel(TunedKernel):
    """Blocks of columns in pipeline stages, each a block behind the one before it; all of them go through the rows
    together."""

    count: str  # blocks
    regions: str  # of neighbouring blocks
    blocks: int  # of a region
    several: bool  # of them
    work: str  # elements of a region
    row: Loop  # of a block
    lane: Loop  # the columns of a block, whole vectors
    rows: int  # rows whose sums are added up together
    lines: int  # lines of memory that are walked down together
    pipeline_stages: tuple[ColumnStage, ...]
    locals: tuple[LocalView, ...]
    streams: tuple[str, ...] = ()  # conditions for non-temporal stores


@dataclass(frozen=True)
class PipelinedRowStage:
    """A part of the work on a row: `lanes` for its vectors, then into the reductions, then what the row has come to."""

    number: int
    rows: tuple[Loop, ...]  # the loops over its rows
    lanes: Lanes
    reductions: tuple[ReductionView, ...]
    ends: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PipelinedRowsKernel(TunedKernel):
    """Rows in pipeline stages, each a row behind the one before it; all of them go along the lanes together."""

    count: str  # rows
    work: str  # elements of a row, once for each pipeline stage
    lanes: Loop  # along a row
    whole: bool  # a row is a multiple of the longest vector
    piece: int  # elements that four accumulators take before they are added up themselves; 0: all
    pipeline_stages: tuple[PipelinedRowStage, ...]
    locals: tuple[LocalView, ...]
    streams: tuple[str, ...] = ()  # conditions for non-temporal stores
    combined: tuple[CombinedRow, ...] = ()
