"""Kernels made of loops: maps, reductions and scans, scatters."""

from __future__ import annotations

from dataclasses import dataclass

from .kernel import KernelView, TunedKernel
from .loops import CombinedRow, Lanes, LocalView, Loop, MapStage, RowsView
from .reductions import (
    ArgColumns,
    ArgReduction,
    ArgRow,
    ColumnReduction,
    HorizontalReduction,
    ReductionView,
    RowOfWindows,
    VerticalReduction,
    WelfordColumns,
)
from .scans import ScanColumns, ScanRow, ScanStage
from .transposes import TransposeIn, TransposeOut

ReductionStage = (
    HorizontalReduction | VerticalReduction | ColumnReduction | WelfordColumns | ArgReduction | ArgRow | ArgColumns
)
Stage = MapStage | ReductionStage | ScanStage | ScanRow | ScanColumns | TransposeIn | TransposeOut


@dataclass(frozen=True)
class NextRow:
    """Where a later row of an operand starts; `whole`: its elements when they are fetched at once."""

    name: str
    lines: tuple[str, ...]
    start: str
    whole: str


@dataclass(frozen=True)
class RowPrefetchView:
    """Rows of operands that are fetched `distance` rows before their turn."""

    distance: int
    last: str  # the last row of the kernel
    rows: tuple[NextRow, ...]


@dataclass(frozen=True)
class LoopKernel(TunedKernel):
    """A parallel loop over rows around one or more stages."""

    rows: tuple[Loop, ...]  # the parallel loops, flattened to one
    count: str
    work: str  # elements of a row
    stages: tuple[Stage, ...]
    locals: tuple[LocalView, ...] = ()
    streams: tuple[str, ...] = ()  # conditions for non-temporal stores
    prefetch: RowPrefetchView | None = None
    setup: tuple[str, ...] = ()  # statements of a task, in front of its rows
    combined: tuple[CombinedRow, ...] = ()


@dataclass(frozen=True)
class SampleKernel(TunedKernel):
    """A parallel loop over samples in two pipeline stages, the later one a sample behind, that take turns along a
    walk."""

    sample: Loop
    walk: Loop
    work: str  # elements of a sample
    reductions: tuple[Stage, ...]  # of a turn of the walk
    ends: tuple[Stage, ...]  # of a sample, behind its walk
    last: Stage  # of a turn of the walk, of the sample before
    locals: tuple[LocalView, ...] = ()
    streams: tuple[str, ...] = ()  # conditions for non-temporal stores


@dataclass(frozen=True)
class RowStreamKernel(TunedKernel):
    """A reduction of each row, with the places of its best values or without; some rows at a time that lie far apart,
    or one after the other."""

    rows: tuple[Loop, ...]  # the parallel loops, flattened to one
    count: str
    work: str  # elements of a row
    best: HorizontalReduction  # those of the positions too, as NAME_best; it has neither kept loops nor outer ones
    positions: tuple[ReductionView, ...]
    finish: tuple[str, ...]
    walk: str  # each_stream_of_rows or each_row_in_order of loops.h

    @property
    def lanes(self) -> Lanes:
        """The loop along the lanes."""
        return self.best.lanes


@dataclass(frozen=True)
class FlatKernel(TunedKernel):
    """A map of one loop, cut into pieces of whole vectors."""

    lanes: Lanes
    streams: tuple[str, ...] = ()  # conditions for non-temporal stores


@dataclass(frozen=True)
class WindowKernel(TunedKernel):
    """Walks over rows of memory that overlapping windows share, those that have begun in registers.

    names: of the windows of a walk, of the places that it reads, of the lanes. span: the first window of a walk, and
    the one behind the last. windows: taps, step, pad and how many are open. inside: lanes whose windows lie inside.
    """

    rows: tuple[Loop, ...]  # of the walks
    count: str
    work: str  # elements of a walk
    names: tuple[str, str, str]
    span: tuple[str, str]
    windows: tuple[int, int, int, int]
    size: str  # places of a walk
    lanes: str
    inside: tuple[int, int]
    reduction: ReductionView
    inner: RowOfWindows
    edge: RowOfWindows
    main: tuple[str, ...]  # the end of a window, whole vectors and the last lanes
    tail: tuple[str, ...]
    streams: tuple[str, ...] = ()  # conditions for non-temporal stores
    tap: str = ""  # that a row is of a window, where it has weights of its own
    locals: tuple[LocalView, ...] = ()
    combined: tuple[CombinedRow, ...] = ()


@dataclass(frozen=True)
class TileView:
    """A tile of an operand, transposed: where it starts in memory and the step between its rows there."""

    name: str
    type: str
    source: str
    step: str


@dataclass(frozen=True)
class ComingBlock:
    """What the next block reads of an operand, `lines` of it fetched with each row of this one."""

    name: str
    source: str
    step: str
    rows: str
    columns: str
    lines: int


@dataclass(frozen=True)
class TileKernel(KernelView):
    """A map over blocks of `rows` x `columns` elements of the loops `row` and `lanes`, within the outer loops.

    depth: rows that are transposed together.
    """

    outer: tuple[Loop, ...]
    count: str  # of all outer loops
    row: Loop
    rows: int
    columns: int
    depth: int
    tiles: tuple[TileView, ...]
    next: tuple[ComingBlock, ...]
    lanes: Lanes
    streams: tuple[str, ...] = ()  # conditions for non-temporal stores


@dataclass(frozen=True)
class ScatterKernel(KernelView):
    """Elements filled, then updated: rows of updates are independent, the updates of a row have an order."""

    fill: RowsView
    update: RowsView
