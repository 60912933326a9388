"""The plan of a CPU kernel of loops: maps, reductions, scans and nests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..buffers import Buffer
from ..expr import Load
from ..index import Index, Var
from ..nodes import Map, Reduce


class Form(Enum):
    """How the loops of a kernel lie around each other."""

    FLAT = "flat"  # a map of one loop
    ROWS = "rows"  # the stages run one after the other in each iteration of the parallel loops
    TILES = "tiles"  # blocks of two loops, whose operands are transposed in registers
    COLUMNS = "columns"  # an outer-loop-vectorised reduction of blocks of columns
    WINDOWS = "windows"  # sliding windows
    TRANSPOSED = "transposed"  # short rows are transposed for SIMD across rows
    PIPELINED_ROWS = "pipelined rows"
    PIPELINED_COLUMNS = "pipelined columns"
    PIPELINED_SAMPLES = "pipelined samples"
    SCAN = "scan"  # steps one after the other, no lanes
    SCAN_COLUMNS = "scan columns"  # the lanes lie across the steps
    SCAN_LANES = "scan lanes"  # the lanes run along the steps


@dataclass(frozen=True)
class Transpose:
    """Rows of memory, and the tile that they are transposed into or out of.

    tile[k*B + r] holds the element `start + r*pitch + k` of the buffer. onward: more rows of memory follow every block
    but the last; otherwise they follow every block but the last of an iteration.
    """

    buffer: Buffer
    tile: Buffer
    start: Index
    pitch: Index
    onward: bool


@dataclass(frozen=True)
class TransposedRows:
    """Blocks of rows: the operands that are transposed in, the stages with the lanes along the rows, and the
    results that are transposed out.

    blocks: the parallel loops; the loops over the blocks of rows are the last of them. element: the loop over a row.
    rows: how many a block has. valid: how many of them exist.
    """

    blocks: tuple[Var, ...]
    element: Var
    rows: int
    valid: Index
    reads: tuple[Transpose, ...]
    stages: tuple[tuple[Map | Reduce, Var], ...]  # and the loop of the lanes
    writes: tuple[Transpose, ...]
    locals: tuple[Buffer, ...]

    def __str__(self) -> str:
        return f"blocks of {self.rows} rows of {self.element.extent}"


@dataclass(frozen=True)
class SlidingWindows:
    """Windows along the loop `row`: window r reduces the places [r * step - pad, r * step - pad + taps) in [0, size).

    inner: the reduction at one place, which is called `at`, for lanes whose windows lie inside along `lanes`; edge: the
    same for all lanes. inside: the range of lanes whose whole windows lie inside. weighted: the index of the tap, where
    the reduction depends on it; None: a place adds the same value to every window.
    """

    row: Var
    taps: int
    step: int
    pad: int
    size: Index | None
    at: Var
    lanes: Var
    inner: Reduce
    edge: Reduce
    inside: tuple[int, int]
    weighted: Var | None = None

    @property
    def open(self) -> int:
        """How many further windows are open when one ends."""
        return (self.taps - 1) // self.step

    def __str__(self) -> str:
        return f"{self.taps} along {self.row.name}, step {self.step}"


@dataclass(frozen=True)
class CombinedResult:
    """A result whose rows of `length` elements are collected in a buffer in the cache; non-temporal stores then write
    them in whole lines.

    pipeline_stage: the pipeline stage that writes the rows, where the kernel is pipelined.
    """

    buffer: Buffer
    length: int
    pipeline_stage: int = 0

    def __str__(self) -> str:
        return self.buffer.name


@dataclass(frozen=True)
class RowOperand:
    """The part of an operand that is prefetched for a row of the kernel: `length` elements from `start` on.

    at_once: the whole part is prefetched before the row begins; otherwise each vector prefetches its share. first: how
    many elements are prefetched where the kernel only copies the row.
    """

    buffer: Buffer
    start: Index
    length: int
    at_once: bool
    first: int


@dataclass(frozen=True)
class RowPrefetch:
    """Rows of operands that are prefetched `distance` rows early; stage: the stage of a nest that prefetches them."""

    distance: int
    operands: tuple[RowOperand, ...]
    stage: int = 0

    def __str__(self) -> str:
        return f"{self.distance} rows ahead of {', '.join(dict.fromkeys(o.buffer.name for o in self.operands))}"


@dataclass(frozen=True)
class TilePlan:
    """Blocks of `rows` x `columns` iterations of the loop `cross` and of the vector loop.

    operands: the loads that are transposed in registers, `depth` rows at a time.
    """

    cross: Var
    rows: int
    columns: int
    depth: int
    operands: tuple[Load, ...]

    def __str__(self) -> str:
        return f"{self.rows} {self.cross.name} x {self.columns}"


@dataclass(frozen=True)
class WindowWalk:
    """How sliding windows walk over memory.

    walks: the parallel loops; `block` among them is the loop over blocks of `size` windows, None where one walk covers
    all windows. prefetch: what is prefetched of each operand at a place; shared: each vector prefetches its share.
    """

    walks: tuple[Var, ...]
    block: Var | None
    size: int
    prefetch: tuple[tuple[Prefetch, ...], ...] = ()
    shared: bool = False

    def __str__(self) -> str:
        return f"{self.size} windows a walk"


@dataclass(frozen=True)
class PipelineBlocks:
    """The blocks of a kernel that is pipelined over columns. region: how many neighbouring blocks are computed while
    the next region is prefetched. together: how many rows are loaded and stored together."""

    region: int = 1
    together: int = 1

    @property
    def several(self) -> bool:
        """Whether a region has more than one block."""
        return self.region > 1


class ReductionKind(Enum):
    """How a stage reduces."""

    HORIZONTAL = "horizontal"  # the lanes run along a reduced loop
    VERTICAL = "vertical"  # each lane has a reduction of its own
    COLUMNS = "columns"  # outer-loop-vectorised: rows of memory are added to a block of accumulators
    ARGMAX = "argmax indices"


@dataclass(frozen=True)
class Prefetch:
    """A prefetch of the elements of `buffer` along the lanes, `vectors` vectors after `index`. level: the cache that
    they are brought into; streams go to the first level, other accesses to the second."""

    buffer: Buffer
    index: Index
    level: int
    vectors: int = 0

    def __str__(self) -> str:
        more = f" + {self.vectors} vectors" if self.vectors else ""
        return f"{self.buffer.name}[{self.index}{more}] to L{self.level}"


@dataclass(frozen=True)
class ColumnWalk:
    """The order in which an outer-loop-vectorised reduction reads the rows of memory.

    columns: the width of a block of accumulators. rows: how many rows are read together. one_by_one: they are read one
    after the other instead, because a value takes long to compute. in_order: each row is read whole, in the order of
    memory. streams: rows that are read together are equally far apart; otherwise they are neighbours. block_rows: the
    number of rows after which the sums are added to the result. apart: rows of memory are pages apart. prefetch: what
    is prefetched meanwhile.
    """

    columns: int
    rows: int
    one_by_one: bool = False
    in_order: bool = False
    streams: bool = False
    block_rows: int = 64
    apart: bool = False
    prefetch: tuple[Prefetch, ...] = ()


@dataclass(frozen=True)
class RowStreams:
    """The order in which rows are reduced. in_order: one after the other, as in memory; otherwise several rows are
    streams that advance by `piece` elements each, round robin. prefetch: what is prefetched meanwhile."""

    in_order: bool
    piece: int
    prefetch: tuple[Prefetch, ...] = ()


@dataclass(frozen=True)
class HorizontalPlan:
    """How a horizontal reduction runs.

    piece: how many elements the accumulators take before they are combined; 0: the whole row. streamed: how many
    elements of a row are read as interleaved streams, `stream` elements of each at a time. prefetch: what is prefetched
    for each vector. row_streams: the order of the rows, where the kernel does nothing but this reduction.
    """

    piece: int
    streamed: int = 0
    stream: int = 0
    prefetch: tuple[Prefetch, ...] = ()
    row_streams: RowStreams | None = None


@dataclass(frozen=True)
class VerticalPlan:
    """How a vertical reduction runs.

    inside: the reduction after bound tightening: its loops leave out the iterations that its conditions leave out.
    unroll: how many iterations of each reduced loop are unrolled; 0: it stays a loop. strips: short rows of memory are
    read in order, with all vectors of a row in registers. neighbours: the position of the reduced loop whose windows
    are read as whole vectors. stream: what is prefetched once for each row of lanes; planes: for each vector. part: of
    transposed rows, how many elements are summed before their sum is added to the total; 0: all.
    """

    inside: Reduce
    unroll: tuple[int, ...]
    strips: bool = False
    neighbours: int | None = None
    stream: tuple[Prefetch, ...] = ()
    planes: tuple[Prefetch, ...] = ()
    part: int = 0

    def __str__(self) -> str:
        unrolled = "x".join(map(str, self.unroll))
        return f"unroll {unrolled}{', in strips' * self.strips}{', whole windows' * (self.neighbours is not None)}"


@dataclass(frozen=True)
class LoopPlan:
    """How the loops of a kernel run. The loops are those of the kernel's node.

    form: how the loops are nested. vector: the vector loop of each stage (a map, reduction or scan is one stage); None:
    the stage is scalar; empty where the form says it. parallel: the loops whose iterations are divided among threads;
    the loops that are neither parallel nor vector loops run inside them. tile: the blocks of a map that transposes
    operands. interleaved: the vector loop of a map whose neighbouring stores are interleaved in registers.
    transposed, windows, window_walk, pipeline: present in kernels of those forms. nontemporal: results that are large
    enough for non-temporal stores, where a vector is a whole line of memory. aligned_lines: these vectors have to be
    whole lines. combined: results whose lines are completed in the cache first (write combining). row_prefetch: rows of
    operands that are prefetched before their iteration.

    The other fields have an entry for each stage. reduction: its kind; None for a map. peel: a partial vector runs
    first, so that the others are aligned (alignment peel). prefetch: what the stage prefetches; None: what its form
    prefetches by itself. walk, vertical, horizontal: how a reduction of that kind runs.
    """

    form: Form = Form.ROWS
    vector: tuple[Var | None, ...] = ()
    parallel: tuple[Var, ...] = ()
    tile: TilePlan | None = None
    interleaved: Var | None = None
    transposed: TransposedRows | None = None
    windows: SlidingWindows | None = None
    window_walk: WindowWalk | None = None
    pipeline: PipelineBlocks | None = None
    nontemporal: tuple[Buffer, ...] = ()
    aligned_lines: bool = False
    combined: tuple[CombinedResult, ...] = ()
    row_prefetch: RowPrefetch | None = None
    reduction: tuple[ReductionKind | None, ...] = ()
    peel: tuple[bool, ...] = ()
    prefetch: tuple[tuple[Prefetch, ...] | None, ...] = ()
    walk: tuple[ColumnWalk | None, ...] = ()
    vertical: tuple[VerticalPlan | None, ...] = ()
    horizontal: tuple[HorizontalPlan | None, ...] = ()

    def fetched(self, stage: int) -> tuple[Prefetch, ...]:
        """What a stage prefetches, or a pipeline stage of pipelined rows."""
        return (self.prefetch[stage] or ()) if self.prefetch else ()


@dataclass(frozen=True)
class UpdatesPlan:
    """How a scatter runs on CPUs: the loops of its fill, which are fused, and the loops of its updates.

    fill: the vector loop of the fill; None: the fill is scalar. columns: the innermost loop of the updates, whose
    iterations are neighbours in memory. lanes: it is a vector loop. prefetch: what is prefetched for each vector of
    updates.
    """

    fill: Var | None = None
    columns: Var | None = None
    lanes: bool = False
    prefetch: tuple[Prefetch, ...] = ()
