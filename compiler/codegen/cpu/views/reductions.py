"""Reductions inside of a kernel: accumulators, and the loops that fill them."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.dtypes import DTYPES
from .loops import Lanes, Loop


def in_memory(scalar: str) -> str:
    """The C++ type in memory of what is computed with as `scalar`."""
    return DTYPES["bool"].cpp if scalar == "bool" else scalar


@dataclass(frozen=True)
class ReductionView:
    """One accumulator: C++ vector and scalar types, start value, and the functions that combine."""

    name: str
    vector: str  # "vf32"
    scalar: str  # "float"
    identity: str
    step: str  # "maximum({a}, {x})"
    value: str  # of products that are summed: both factors, "x, y"
    value_tail: str
    across: str  # "reduce_max"
    best: str = ""  # of an argmax: what the best value itself is called; nobody asks for it when empty
    products: bool = False

    @property
    def stored(self) -> str:
        """The accumulator's C++ type in memory."""
        return in_memory(self.scalar)

    @property
    def largest(self) -> bool:
        """Of an argmax: whether it is one, and no argmin."""
        return self.across in ("reduce_max", "reduce_or")

    def take(self, value: str, a: str = "") -> str:
        """The accumulator `a` (the view's own when empty) with one more value."""
        a = a or self.name
        return f"fma({value}, {a})" if self.products else self.combine(a, value)

    def combine(self, a: str, x: str, nested: bool = False) -> str:
        """Two accumulators as one."""
        text = self.step.format(a=a, x=x)
        return f"({text})" if nested and not self.step.endswith(")") else text


@dataclass(frozen=True)
class HorizontalReduction:
    """A reduction along the lanes: several accumulators, combined at the end, then scalar stores."""

    loops: tuple[Loop, ...]  # kept loops around it
    outer: tuple[Loop, ...]  # reduced loops around the vector loop
    lanes: Lanes
    reductions: tuple[ReductionView, ...]
    finish: tuple[str, ...]
    piece: int  # elements that four accumulators take before they are added up themselves; 0: all
    streams: int = 0  # elements at the beginning of the row that are read as four streams of memory at a time
    stream: int = 0  # elements of a stream
    form: str = "horizontal_reduction"

    @property
    def elements(self) -> int | str:
        """Of a row: a number, or its text."""
        return int(self.lanes.extent) if self.lanes.extent.isdigit() else self.lanes.extent

    @property
    def rest(self) -> bool:
        """Whether elements follow the streams."""
        return self.elements != self.streams

    @property
    def pieces_end(self) -> str:
        """Where the whole pieces behind the streams end; nothing where there are none."""
        if isinstance(self.elements, str):
            return f"({self.elements}) / {self.piece} * {self.piece}"
        end = self.streams + (self.elements - self.streams) // self.piece * self.piece
        return str(end) if end > self.streams else ""

    @property
    def last_piece(self) -> int | str:
        """Elements behind the whole pieces; 0 where there are none."""
        if isinstance(self.elements, str):
            return f"({self.elements} - piece)"
        return (self.elements - self.streams) % self.piece


@dataclass(frozen=True)
class Neighbours:
    """Windows one behind the other, `each` elements to a window, as the vectors that they fill: of those at `lane`."""

    each: int
    lane: str
    outer: tuple[Loop, ...]  # the other reduced loops
    reductions: tuple[ReductionView, ...]
    pre: tuple[str, ...]
    main: tuple[str, ...]


@dataclass(frozen=True)
class VerticalReduction:
    """A reduction with the lanes along a kept loop (or none): accumulators are vectors (or scalars)."""

    loops: tuple[Loop, ...]
    outer: tuple[Loop, ...]  # reduced loops
    lanes: Lanes | None  # the kept vector loop: pre is empty, full and part finish the elements
    reductions: tuple[ReductionView, ...]
    pre: tuple[str, ...]  # statements inside the reduced loops: scalar, full and part
    main: tuple[str, ...]
    tail: tuple[str, ...]
    scalar: tuple[str, ...]  # the end without lanes
    part_of: int = 0  # iterations of the one reduced loop that are summed by themselves, so that sums keep their digits
    strips: bool = False  # all vectors of a row are in registers, while the reduced loops go on
    neighbours: Neighbours | None = None  # whole vectors of windows
    overlaps: bool = False  # the last vector ends with the row, and writes some lanes of the one before it again
    fetched: tuple[str, ...] = ()  # fetches of what follows: once a vector of a row in a strip, else once a vector
    form: str = "vertical_reduction"


@dataclass(frozen=True)
class Weights:
    """What the elements of a row are multiplied by, for one tap: statements and value, whole vectors and the last."""

    main: tuple[str, ...]
    tail: tuple[str, ...]
    value: str
    value_tail: str


@dataclass(frozen=True)
class RowOfWindows:
    """What one place of a walk adds to the windows that it lies in: a reduction in registers."""

    outer: tuple[Loop, ...]  # reduced loops
    turns: tuple[Loop, ...]  # those of them whose turns differ from walk to walk, NAME_count
    reductions: tuple[ReductionView, ...]  # one
    pre: tuple[str, ...]  # statements inside the reduced loops: scalar, full and part
    main: tuple[str, ...]
    tail: tuple[str, ...]
    prefetch: tuple[str, ...]  # fetches what the next row's windows read
    weight: Weights | None = None  # the reduction is a sum of products, of which the value is one factor


@dataclass(frozen=True)
class Walk:
    """How some rows of memory are added into a vector of accumulators while that is in registers."""

    function: str  # of loops.h
    rows: int
    prefetch: tuple[str, ...]  # fetches what a row's vector reads some rows on
    streams: bool = False  # they lie in equal distances among a block of rows, or all of them; else side by side
    in_order: bool = False  # one row after the other, each as a whole


@dataclass(frozen=True)
class ColumnReduction:
    """A long reduction with the lanes along a kept loop: rows of memory are added to a block of accumulators.

    The lanes run from `first` to `last`, `columns` at a time; the results of `rows` rows are combined in their turn, so
    that sums keep their digits.
    """

    loops: tuple[Loop, ...]
    outer: tuple[Loop, ...]  # reduced loops around the rows
    row: Loop
    lanes: Lanes  # the kept vector loop: full and part finish the elements
    reductions: tuple[ReductionView, ...]
    main: tuple[str, ...]  # statements of a row's vector
    tail: tuple[str, ...]
    first: str
    last: str
    columns: int
    rows: int
    walk: Walk
    apart: bool = False  # rows lie far apart in memory: few groups of them are walked together
    form: str = "column_reduction"

    @property
    def direct(self) -> bool:
        """Whether the first group of rows begins the accumulators and the last one finishes them, in registers."""
        return self.once and self.apart

    @property
    def pairs(self) -> bool:
        """Two vectors of columns go together where nothing is fetched: lines of memory come in twos."""
        return not self.walk.prefetch

    @property
    def once(self) -> bool:
        """Whether all rows are one block of rows, whose accumulators are the result."""
        return not self.outer and self.row.extent.isdigit() and int(self.row.extent) <= self.rows


@dataclass(frozen=True)
class WelfordColumns:
    """Squared deviations from the means of columns: rows of memory are taken in its order, all columns of each."""

    loops: tuple[Loop, ...]
    row: Loop
    lanes: Lanes  # the kept vector loop: full finishes the elements
    reduction: ReductionView
    main: tuple[str, ...]  # statements of a row's vector
    columns: int
    size: int  # bytes of an element that is fetched
    prefetch: tuple[str, ...]
    form: str = "welford_columns"


@dataclass(frozen=True)
class ArgReduction:
    """argmax or argmin: one lane at a time, the first of equal values, NaN before all."""

    loops: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    reductions: tuple[ReductionView, ...]
    positions: tuple[ReductionView, ...]
    place: str  # the flat position in the reduced loops
    pre: tuple[str, ...]
    scalar: tuple[str, ...]
    form: str = "arg_reduction"


@dataclass(frozen=True)
class ArgRow:
    """argmax or argmin of a row: its largest value by lanes, then the first place that holds it."""

    loops: tuple[Loop, ...]
    best: HorizontalReduction  # the reductions, and those of the positions as NAME_best
    lanes: Lanes
    positions: tuple[ReductionView, ...]
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
    reductions: tuple[ReductionView, ...]
    positions: tuple[ReductionView, ...]
    main: tuple[str, ...]
    tail: tuple[str, ...]
    first: str
    last: str
    columns: int
    walk: Walk
    form: str = "arg_columns"
