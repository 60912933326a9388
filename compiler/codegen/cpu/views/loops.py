"""Loops, vector loops and what is stored in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    """for (int64_t name = 0; name < extent; ++name); most: turns of a short loop that is unrolled, 0 for others"""

    name: str
    extent: str
    most: int = 0


@dataclass(frozen=True)
class Lanes:
    """The statements of a vector loop: once in front, for the main loop, for the last `count` lanes."""

    name: str
    extent: str
    pre: tuple[str, ...]
    main: tuple[str, ...]
    tail: tuple[str, ...]
    whole: bool  # the extent is a multiple of the longest vector: there is no last part
    moved: str = ""  # the one statement instead of all of them that moves `count` elements as they are
    peel: str = ""  # where the result begins whose vectors have to be aligned

    @property
    def fixed(self) -> bool:
        """The last part has as many lanes as the extent, a number, says."""
        return self.extent.isdigit() and not self.peel


@dataclass(frozen=True)
class MapStage:
    """Loops around a vector loop, or around scalar statements when `lanes` is None."""

    loops: tuple[Loop, ...]
    lanes: Lanes | None
    scalar: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # each turn of the innermost loop around the lanes
    form: str = "map"


@dataclass(frozen=True)
class LocalView:
    """A value or a row of values that lives within one row."""

    name: str
    type: str
    extent: str  # "" for a single value


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
class CombinedRow:
    """Rows of a result that are combined in a cache and written by non-temporal stores, in whole lines.

    result: the parameter of the kernel; length: elements of a row; pipeline_stage: that writes them, where rows have
    pipeline stages.
    """

    result: str
    type: str
    length: str
    pipeline_stage: int = 0

    @property
    def name(self) -> str:
        """Where a row is written."""
        return f"{self.result}_row"

    @property
    def lines(self) -> str:
        """The object that gathers them."""
        return f"{self.result}_lines"

    @property
    def memory(self) -> str:
        """The name of the row in the first cache that is combined."""
        return f"{self.result}_combined"
