"""What the templates see: frozen values with finished text. Templates take no decisions."""

from __future__ import annotations

from dataclasses import dataclass

from .scope import Param


@dataclass(frozen=True)
class Loop:
    """for (int64_t name = 0; name < extent; ++name); most: turns of a short loop that is written out, 0 for others"""

    name: str
    extent: str
    most: int = 0


@dataclass(frozen=True)
class Lanes:
    """The statements of a vector loop: once in front, for full vectors, for the last `count` lanes."""

    name: str
    extent: str
    pre: tuple[str, ...]
    full: tuple[str, ...]
    part: tuple[str, ...]
    whole: bool  # the extent is a multiple of the longest vector: there is no last part
    moved: str = ""  # the one statement instead of all of them that moves `count` elements as they are

    @property
    def fixed(self) -> bool:
        """The extent is a number."""
        return self.extent.isdigit()


@dataclass(frozen=True)
class MapStage:
    """Loops around a vector loop, or around scalar statements when `lanes` is None."""

    loops: tuple[Loop, ...]
    lanes: Lanes | None
    scalar: tuple[str, ...] = ()
    form: str = "map"


@dataclass(frozen=True)
class FoldView:
    """One accumulator: C++ vector and scalar types, start value, and the functions that fold."""

    name: str
    vector: str  # "vf32"
    scalar: str  # "float"
    identity: str
    step: str  # "maximum({a}, {x})"
    value: str  # of products that are summed: both factors, "x, y"
    value_part: str
    across: str  # "reduce_max"
    best: str = ""  # of an argmax: what the best value itself is called; nobody asks for it when empty
    products: bool = False

    @property
    def largest(self) -> bool:
        """Of an argmax: whether it is one, and no argmin."""
        return self.across in ("reduce_max", "reduce_or")

    def take(self, value: str, a: str = "") -> str:
        """The accumulator `a` (the view's own when empty) with one more value."""
        a = a or self.name
        return f"fma({value}, {a})" if self.products else self.fold(a, value)

    def fold(self, a: str, x: str, nested: bool = False) -> str:
        """Two accumulators as one."""
        text = self.step.format(a=a, x=x)
        return f"({text})" if nested and not self.step.endswith(")") else text


@dataclass(frozen=True)
class RowFold:
    """A reduction along the lanes: several accumulators, folded at the end, then scalar stores."""

    loops: tuple[Loop, ...]  # kept loops around it
    outer: tuple[Loop, ...]  # reduced loops around the vector loop
    lanes: Lanes
    folds: tuple[FoldView, ...]
    finish: tuple[str, ...]
    piece: int  # elements that four accumulators fold before they are folded themselves; 0: all
    form: str = "row_fold"


@dataclass(frozen=True)
class LaneFold:
    """A reduction with the lanes along a kept loop (or none): accumulators are vectors (or scalars)."""

    loops: tuple[Loop, ...]
    outer: tuple[Loop, ...]  # reduced loops
    lanes: Lanes | None  # the kept vector loop: pre is empty, full and part finish the elements
    folds: tuple[FoldView, ...]
    pre: tuple[str, ...]  # statements inside the reduced loops: scalar, full and part
    full: tuple[str, ...]
    part: tuple[str, ...]
    scalar: tuple[str, ...]  # the end without lanes
    form: str = "lane_fold"


@dataclass(frozen=True)
class Walk:
    """How some rows of memory are folded into a vector of accumulators while that is in registers."""

    function: str  # of loops.h
    rows: int
    ahead: tuple[str, ...]  # fetches what a row's vector reads that many rows on


@dataclass(frozen=True)
class ColumnFold:
    """A long reduction with the lanes along a kept loop: rows of memory are added to a block of accumulators.

    The lanes run from `first` to `last`, `columns` at a time; folds of `rows` rows are folded in their turn, so that
    sums keep their digits.
    """

    loops: tuple[Loop, ...]
    outer: tuple[Loop, ...]  # reduced loops around the rows
    row: Loop
    lanes: Lanes  # the kept vector loop: full and part finish the elements
    folds: tuple[FoldView, ...]
    full: tuple[str, ...]  # statements of a row's vector
    part: tuple[str, ...]
    first: str
    last: str
    columns: int
    rows: int
    walk: Walk
    form: str = "column_fold"


@dataclass(frozen=True)
class ArgFold:
    """argmax or argmin: one lane at a time, the first of equal values, NaN before all."""

    loops: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    folds: tuple[FoldView, ...]
    positions: tuple[FoldView, ...]
    place: str  # the flat position in the reduced loops
    pre: tuple[str, ...]
    scalar: tuple[str, ...]
    form: str = "arg_fold"


@dataclass(frozen=True)
class ArgRow:
    """argmax or argmin of a row: its largest value by lanes, then the first place that holds it."""

    loops: tuple[Loop, ...]
    best: RowFold  # the folds, and those of the positions as NAME_best
    lanes: Lanes
    positions: tuple[FoldView, ...]
    finish: tuple[str, ...]
    form: str = "arg_row"


@dataclass(frozen=True)
class ArgColumns:
    """argmax or argmin over rows of memory: every column keeps its best value and its row.

    The lanes run from `first` to `last`, `columns` at a time.
    """

    loops: tuple[Loop, ...]
    row: Loop
    lanes: Lanes  # the kept vector loop: full and part finish the elements
    folds: tuple[FoldView, ...]
    positions: tuple[FoldView, ...]
    full: tuple[str, ...]
    part: tuple[str, ...]
    first: str
    last: str
    columns: int
    walk: Walk
    form: str = "arg_columns"


@dataclass(frozen=True)
class CarryView:
    """A value that goes from step to step."""

    name: str
    type: str
    start: str
    next: str


@dataclass(frozen=True)
class ScanStage:
    """Steps in order: all next values are computed, then taken, then the step's elements are stored."""

    pre: tuple[str, ...]  # what the start values need
    carries: tuple[CarryView, ...]
    step: Loop
    advance: tuple[str, ...]  # what the next values need
    finish: tuple[str, ...]
    form: str = "scan"


@dataclass(frozen=True)
class ScanRow:
    """Running sums or products with the lanes along the steps: `name` is a vector of them, `value` of the elements."""

    pre: tuple[str, ...]  # what the start value needs
    running: str  # the function
    name: str
    vector: str
    start: str
    lanes: Lanes
    advance: tuple[str, ...]  # what the values need
    advance_part: tuple[str, ...]
    value: str
    value_part: str
    form: str = "scan_row"


@dataclass(frozen=True)
class LaneCarry:
    """A value of each column that goes from step to step."""

    name: str
    vector: str  # "vf64"
    scalar: str  # "double"
    start: str
    next: str
    next_part: str


@dataclass(frozen=True)
class ScanColumns:
    """Steps in order with the lanes across them: what a block of columns carries waits in memory between groups of
    steps. The lanes run from `first` to `last`, `columns` at a time.
    """

    pre: tuple[str, ...]  # what the start values need
    carries: tuple[LaneCarry, ...]
    step: Loop
    lanes: Lanes
    advance: tuple[str, ...]  # what the next values need
    advance_part: tuple[str, ...]
    finish: tuple[str, ...]
    finish_part: tuple[str, ...]
    first: str
    last: str
    columns: int
    walk: Walk
    form: str = "scan_columns"


Stage = MapStage | RowFold | LaneFold | ColumnFold | ArgFold | ArgRow | ArgColumns | ScanStage | ScanRow | ScanColumns


@dataclass(frozen=True)
class LocalView:
    """A value or a row of values that lives within one row."""

    name: str
    type: str
    extent: str  # "" for a single value


@dataclass(frozen=True)
class Tuning:
    """What a choice sets for a kernel: fields of a C++ struct (or without one, of the template) and their values."""

    struct: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def argument(self) -> str:
        """The struct as one more argument of a call."""
        return ", tuning" if self.struct else ""

    def value(self, name: str, default: str) -> str:
        return dict(self.fields).get(name, default)

    def added(self, name: str) -> str:
        """The field as one more argument of a call; nothing when it is not set."""
        return f", {self.value(name, '')}" if name in dict(self.fields) else ""


COST_MODEL = Tuning()


@dataclass(frozen=True)
class NextRow:
    """Where a later row of an operand starts; `whole`: its elements when they are fetched at once."""

    name: str
    lines: tuple[str, ...]
    start: str
    whole: str


@dataclass(frozen=True)
class Ahead:
    """Rows of operands that are fetched `distance` rows before their turn."""

    distance: int
    last: str  # the last row of the kernel
    rows: tuple[NextRow, ...]


@dataclass(frozen=True)
class LoopKernel:
    """A parallel loop over rows around one or more stages."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    rows: tuple[Loop, ...]  # the parallel loops, flattened to one
    count: str
    work: str  # elements of a row
    stages: tuple[Stage, ...]
    locals: tuple[LocalView, ...] = ()
    streams: tuple[str, ...] = ()  # results that are written past the caches
    tuning: Tuning = COST_MODEL
    ahead: Ahead | None = None
    setup: tuple[str, ...] = ()  # statements of a task, in front of its rows


@dataclass(frozen=True)
class ColumnEnd:
    """What is stored for the columns of a block at the end of a phase; folds: accumulators that it reads."""

    folds: tuple[FoldView, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class PhaseView:
    """A part of the work on a block of columns: `lines` for a vector of a row, then into the folds, then the ends."""

    number: int
    rows: tuple[Loop, ...]  # the loops over its blocks
    lines: tuple[str, ...]
    folds: tuple[FoldView, ...]
    ends: tuple[ColumnEnd, ...]


@dataclass(frozen=True)
class PhaseKernel:
    """Blocks of columns in phases, each a block behind the one before it; all of them go through the rows together."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    count: str  # blocks
    work: str  # elements of a block
    row: Loop  # of a block
    lane: Loop  # the columns of a block, whole vectors
    together: int  # rows that are walked through together
    rows: int  # rows whose folds are folded in their turn
    phases: tuple[PhaseView, ...]
    locals: tuple[LocalView, ...]
    streams: tuple[str, ...] = ()  # results that are written past the caches
    tuning: Tuning = COST_MODEL


@dataclass(frozen=True)
class RowPhase:
    """A part of the work on a row: `lanes` for its vectors, then into the folds, then what the row has come to."""

    number: int
    rows: tuple[Loop, ...]  # the loops over its rows
    lanes: Lanes
    folds: tuple[FoldView, ...]
    ends: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class RowPhaseKernel:
    """Rows in phases, each a row behind the one before it; all of them go along the lanes together."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    count: str  # rows
    work: str  # elements of a row, once for each phase
    lanes: Loop  # along a row
    whole: bool  # a row is a multiple of the longest vector
    piece: int  # elements that four accumulators fold before they are folded themselves; 0: all
    phases: tuple[RowPhase, ...]
    locals: tuple[LocalView, ...]
    streams: tuple[str, ...] = ()  # results that are written past the caches
    tuning: Tuning = COST_MODEL


@dataclass(frozen=True)
class FlatKernel:
    """A map of one loop, cut into pieces of whole vectors."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    lanes: Lanes
    streams: tuple[str, ...] = ()  # results that are written past the caches
    tuning: Tuning = COST_MODEL


@dataclass(frozen=True)
class TileView:
    """A tile of an operand, turned: where it starts in memory and the step between its rows there."""

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
class TileKernel:
    """A map over blocks of `rows` x `columns` elements of the loops `row` and `lanes`, within the outer loops.

    depth: rows that are turned together.
    """

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    outer: tuple[Loop, ...]
    count: str  # of all outer loops
    row: Loop
    rows: int
    columns: int
    depth: int
    tiles: tuple[TileView, ...]
    next: tuple[ComingBlock, ...]
    lanes: Lanes
    streams: tuple[str, ...] = ()  # results that are written past the caches


@dataclass(frozen=True)
class Epilogue:
    """How a structured kernel finishes elements (z, m, n .. n + count - 1).

    ahead: fetches what 16 of them need from memory, for the elements from `column` on.
    added: the fields of mycc::Added for them, when only a bias and a residual are added.
    """

    decode: tuple[str, ...]
    lanes: Lanes
    ahead: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class GemmKernel:
    """A matrix product; texts are C++ expressions."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    fields: tuple[tuple[str, str], ...]  # of the argument struct, in its order
    epilogue: Epilogue
    tuning: Tuning = COST_MODEL
    arguments: str = "GemmArgs"  # the argument struct of a product with packed weights
    form: str = ""  # template arguments of one of Winograd's convolutions


@dataclass(frozen=True)
class ChainLink:
    """A convolution of a chain: its part ("expand", "depthwise" or "project"), its ConvArgs and its epilogue.

    inside: the epilogue writes into scratch memory. params: those of the kernel that the epilogue needs.
    """

    part: str
    fields: tuple[tuple[str, str], ...]
    epilogue: Epilogue
    inside: bool
    params: tuple[Param, ...]


@dataclass(frozen=True)
class ChainKernel:
    """Convolutions one after the other."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    links: tuple[ChainLink, ...]

    def link(self, part: str) -> ChainLink | None:
        """None where the part is missing."""
        return next((link for link in self.links if link.part == part), None)


@dataclass(frozen=True)
class AttentionKernel:
    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    fields: tuple[tuple[str, str], ...]
    score: Epilogue | None
    tuning: Tuning = COST_MODEL


@dataclass(frozen=True)
class RowsView:
    """A parallel loop over `rows`, flattened to one of `count`, around a stage of `work` elements.

    columns: a further loop that is innermost, so that what the others read serves a range of it: that of a task.
    """

    rows: tuple[Loop, ...]
    count: str
    work: str
    stage: MapStage
    columns: Loop | None = None


@dataclass(frozen=True)
class ScatterKernel:
    """Elements filled, then updated: rows of updates are independent, the updates of a row have an order."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    fill: RowsView
    update: RowsView


@dataclass(frozen=True)
class RoutineKernel:
    """A function of a header on each of `count` blocks; `arguments` are texts in terms of `block`."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    function: str
    count: str
    work: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class TensorView:
    """A mycc_tensor: C++ texts of its address, shape and strides, and DLPack's code and bits of its dtype."""

    address: str
    code: int
    bits: int
    shape: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(frozen=True)
class NumberView:
    """A mycc_number: the field that holds it, and its C++ text."""

    field: str
    value: str


@dataclass(frozen=True)
class CustomKernel:
    """A C++ function of the user's on whole tensors, and the translation unit that defines it."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    function: str
    outputs: tuple[TensorView, ...]
    inputs: tuple[TensorView, ...]
    numbers: tuple[NumberView, ...]
    source: str


@dataclass(frozen=True)
class AssertKernel:
    """condition: the name of the flag; text: the C++ string literal to fail with."""

    template: str
    comment: tuple[str, ...]
    params: tuple[Param, ...]
    condition: str
    text: str


KernelView = (
    CustomKernel
    | AssertKernel
    | ScatterKernel
    | RoutineKernel
    | LoopKernel
    | PhaseKernel
    | RowPhaseKernel
    | FlatKernel
    | TileKernel
    | GemmKernel
    | ChainKernel
    | AttentionKernel
)
