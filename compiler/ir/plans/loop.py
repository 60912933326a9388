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
    ROWS = "rows"  # stages one after the other, for each turn of the parallel loops
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
    """Rows of memory and the tile that they are transposed to, or from.

    tile[k*B + r] is what lies `start + r*pitch + k` elements into the buffer. onward: every block but the last has rows
    of memory behind it; else, every block but the last of its turn.
    """

    buffer: Buffer
    tile: Buffer
    start: Index
    pitch: Index
    onward: bool


@dataclass(frozen=True)
class TransposedRows:
    """Blocks of rows: what is transposed in, the stages with the lanes along the rows, and what is transposed out.

    blocks: the parallel loops, those over the blocks of a row's last; element: the loop over a row; rows: of a block,
    whole: all its rows are there.
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
    """Windows along the loop `row`: r reduces the places [r * step - pad, r * step - pad + taps) of those in [0, size).

    inner: the reduction of one place, named `at`, in lanes that lie inside along `lanes`; edge: in any lanes.
    inside: the first lane all of whose window lies inside, and the lane behind the last such.
    weighted: the tap that a row is of a window, where the reduction depends on it; None: it adds the same to each.
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
        """Windows that have begun when one ends."""
        return (self.taps - 1) // self.step

    def __str__(self) -> str:
        return f"{self.taps} along {self.row.name}, step {self.step}"


@dataclass(frozen=True)
class CombinedResult:
    """A result whose rows, `length` elements each, are gathered in a cache and written by non-temporal stores, in whole
    lines.

    pipeline_stage: the pipeline stage that writes them, where rows have stages.
    """

    buffer: Buffer
    length: int
    pipeline_stage: int = 0

    def __str__(self) -> str:
        return self.buffer.name


@dataclass(frozen=True)
class RowOperand:
    """What is prefetched of an operand for a row of the kernel: `length` elements from `start` on.

    at_once: all of it before the row begins; else vector by vector, or the `first` elements where it is only moved.
    """

    buffer: Buffer
    start: Index
    length: int
    at_once: bool
    first: int


@dataclass(frozen=True)
class RowPrefetch:
    """Rows of operands that are fetched `distance` rows before their turn; stage: the stage of a nest that fetches."""

    distance: int
    operands: tuple[RowOperand, ...]
    stage: int = 0

    def __str__(self) -> str:
        return f"{self.distance} rows ahead of {', '.join(dict.fromkeys(o.buffer.name for o in self.operands))}"


@dataclass(frozen=True)
class TilePlan:
    """Blocks of `rows` x `columns` elements of the loop `cross` and the loop along the lanes.

    operands: the loads that are transposed in registers, `depth` rows of them together.
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

    walks: the parallel loops, with `block` over blocks of `size` windows among them; None: all windows are one walk.
    prefetch: of each operand, what is fetched at a place; shared: each vector fetches its share of it.
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
    """Of pipelined columns: `region` neighbouring blocks are computed one after the other, while the next region is
    fetched; `together`: rows that come and go together."""

    region: int = 1
    together: int = 1

    @property
    def several(self) -> bool:
        """Whether a region has more than one block."""
        return self.region > 1


class ReductionKind(Enum):
    """How a stage reduces."""

    HORIZONTAL = "horizontal"  # the lanes run along a reduced loop
    VERTICAL = "vertical"  # every lane reduces for itself
    COLUMNS = "columns"  # outer-loop-vectorised: rows of memory are added to a block of accumulators
    ARGMAX = "argmax indices"


@dataclass(frozen=True)
class Prefetch:
    """Neighbours along the lanes that are fetched before they are read: those of `buffer` from `index` on, `vectors`
    vectors further. level: of the cache that they come to; the second for what is no stream."""

    buffer: Buffer
    index: Index
    level: int
    vectors: int = 0

    def __str__(self) -> str:
        more = f" + {self.vectors} vectors" if self.vectors else ""
        return f"{self.buffer.name}[{self.index}{more}] to L{self.level}"


@dataclass(frozen=True)
class ColumnWalk:
    """How rows of memory are walked over that lie across the lanes.

    columns: of a block of accumulators. rows: that are walked over together; one_by_one: one behind the other instead,
    for what is long to compute; in_order: each as a whole, as they lie in memory; streams: rows that go together lie
    in equal distances, else side by side. block_rows: rows after which sums are added to the result. apart: rows of
    memory lie pages apart. prefetch: what is fetched meanwhile.
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
    """Rows that are reduced together: one behind the other as they lie in memory (in_order), or several streams of
    rows, `piece` elements of each in its turn. prefetch: what is fetched meanwhile."""

    in_order: bool
    piece: int
    prefetch: tuple[Prefetch, ...] = ()


@dataclass(frozen=True)
class HorizontalPlan:
    """How a reduction along the lanes runs.

    piece: elements that its accumulators take in a run; 0: the whole row. streamed: elements of a row that are read as
    interleaved streams, `stream` of each at a time. prefetch: what is fetched for each vector. row_streams: how rows of
    a kernel go together that does nothing else.
    """

    piece: int
    streamed: int = 0
    stream: int = 0
    prefetch: tuple[Prefetch, ...] = ()
    row_streams: RowStreams | None = None


@dataclass(frozen=True)
class VerticalPlan:
    """How a reduction runs in which every lane reduces for itself.

    inside: the reduction with loops that leave out what its conditions leave out (bound tightening). unroll: iterations
    of each reduced loop that are unrolled; 0: a loop. strips: short rows of memory in their order, all vectors of a row
    in registers. neighbours: the number of the reduced loop whose windows are read as the vectors that they fill.
    stream: what is fetched once for each row of lanes; planes: for each vector. part: of transposed
    rows, elements that are summed before their sum is added to that of those before them; 0: all.
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
    """How the loops of a kernel run. Loops are those of the kernel's node.

    form: how they lie around each other. vector: the loop along the lanes of each stage (a map, reduction or scan
    is one stage); None: one element at a time; empty where it follows from the form. parallel: the loops whose
    iterations threads share out; those that are neither parallel nor along the lanes run inside. tile: the blocks
    of a map that transposes operands. interleaved: the lanes of a map whose stores lie side by side and leave
    together, shuffled in registers. transposed, windows, window_walk, pipeline: of kernels of those forms.
    nontemporal: results so large that they are written by non-temporal stores where vectors are
    whole lines of memory. aligned_lines: those vectors have to be whole lines. combined: results whose lines are
    put together in a cache first (write combining). row_prefetch: rows of operands that are prefetched before their
    iteration.

    Of each stage: reduction: how it reduces; None for a map. peel: a part of a vector goes in front, so that the
    others are aligned (alignment peel). prefetch: what it fetches; None: what its form fetches by itself. walk: how
    rows of memory are walked over that lie across its lanes. vertical, horizontal: how lanes run that reduce for
    themselves, and how those do that reduce one row.
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
        """What a stage fetches, or a pipeline stage of pipelined rows."""
        return (self.prefetch[stage] or ()) if self.prefetch else ()


@dataclass(frozen=True)
class UpdatesPlan:
    """How a scatter runs on CPUs: the loops of its fill, which are fused, and those of its updates.

    fill: the loop along the lanes of the fill; None: one element at a time. columns: the loop of the updates whose
    neighbours lie side by side in memory; it runs inside the others. lanes: neighbours along it are a vector. prefetch:
    what is fetched for each vector of updates.
    """

    fill: Var | None = None
    columns: Var | None = None
    lanes: bool = False
    prefetch: tuple[Prefetch, ...] = ()
