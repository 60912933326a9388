"""Scans inside of a kernel: steps in order, and what they hand on."""

from __future__ import annotations

from dataclasses import dataclass

from .loops import Lanes, Loop
from .reductions import in_memory


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
    carry: str  # the type of what goes from vector to vector: half a vector
    start: str
    lanes: Lanes
    advance: tuple[str, ...]  # what the values need
    advance_tail: tuple[str, ...]
    value: str
    value_tail: str
    form: str = "scan_row"


@dataclass(frozen=True)
class LaneCarry:
    """A value of each column that goes from step to step."""

    name: str
    vector: str  # "vf64"
    scalar: str  # "double"
    start: str
    next: str
    next_tail: str

    @property
    def stored(self) -> str:
        """Its C++ type in memory."""
        return in_memory(self.scalar)


@dataclass(frozen=True)
class ScanColumns:
    """Steps in order with the lanes across them: what a block of columns carries waits in memory between steps.

    The lanes run from `first` to `last`, `columns` at a time.
    """

    pre: tuple[str, ...]  # what the start values need
    carries: tuple[LaneCarry, ...]
    step: Loop
    lanes: Lanes
    advance: tuple[str, ...]  # what the next values need
    advance_tail: tuple[str, ...]
    finish: tuple[str, ...]
    finish_tail: tuple[str, ...]
    first: str
    last: str
    columns: int
    prefetch: tuple[str, ...]  # fetches what a later step reads
    form: str = "scan_columns"
