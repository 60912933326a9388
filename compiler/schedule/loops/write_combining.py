"""Write combining: rows of results are collected in the cache and written by non-temporal stores in whole lines
(kernels/loops/write_combining.h).

    for row  for k:58  y[row*58 + k] = ..      ->      for row  { for k:58  gathered[at + k] = ..,  whole lines to y }

Large results are written by non-temporal stores where vectors are whole lines. Rows of 58 floats are not: both ends of
a row are partial lines, which would be read from memory first, and their vectors are not aligned.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.buffers import IN_PLACE, Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import ZERO, Index, Var
from ...ir.nodes import Map, Reduce, Scan
from ...ir.plans.loop import CombinedResult
from ...machine.cpu_loops import FETCHES
from .interleave import groups
from .store_policy import whole_lines


@dataclass(frozen=True)
class Stage:
    """A stage of a kernel, the loop of its lanes, and its pipeline stage, where rows have pipeline stages."""

    node: Map | Reduce | Scan
    lanes: Var | None
    pipeline_stage: int = 0

    def loops(self, rows: Sequence[Var]) -> list[Var]:
        """Those within a row."""
        reduced = self.node.rdims if isinstance(self.node, Reduce) else ()
        return [*self.written(rows), *reduced]

    def written(self, rows: Sequence[Var]) -> list[Var]:
        """Those of them that what is stored has."""
        steps = (self.node.step,) if isinstance(self.node, Scan) else ()
        return [v for v in (*self.node.dims, *steps) if v not in rows]


def combined_results(
    stages: Sequence[Stage], rows: Sequence[Var], nontemporal: Collection[Buffer]
) -> tuple[CombinedResult, ...]:
    """The results of `stages` whose rows are gathered.

    rows: the parallel loops, outermost first; every other loop of a stage is one of its row.
    """
    found = []
    for buffer in dict.fromkeys(s.buffer for stage in stages for s in stage.node.stores):
        own = [(stage, s.index) for stage in stages for s in stage.node.stores if s.buffer == buffer]
        length = sum(_elements(stage, rows) for stage, _ in own)
        wanted = _large(buffer, length, nontemporal) and not all(_whole(stage, buffer, nontemporal) for stage, _ in own)
        alone = len({stage.pipeline_stage for stage, _ in own}) == 1 and not any(
            buffer in s.node.reads() for s in stages
        )
        if rows and wanted and alone and _in_order(own, rows, length):
            found.append(CombinedResult(buffer, length, own[0][0].pipeline_stage))
    return tuple(found)


def _elements(stage: Stage, rows: Sequence[Var]) -> int:
    """What a store of the stage writes in a row; far too many where that is not known."""
    return math.prod(v.extent.constant or FETCHES.most_combined + 1 for v in stage.written(rows))


def _large(buffer: Buffer, length: int, nontemporal: Collection[Buffer]) -> bool:
    """Whether the result is one that is written by non-temporal stores, its rows of a length that is gathered."""
    new = buffer.of is None and buffer.kind not in IN_PLACE
    return (
        new
        and buffer in nontemporal
        and FETCHES.combined_bytes <= length * DTYPES[buffer.dtype].size <= FETCHES.most_combined
    )


def _whole(stage: Stage, buffer: Buffer, nontemporal: Collection[Buffer]) -> bool:
    """Whether all that the stage stores in the buffer are whole lines as it is."""
    lanes = stage.lanes
    own = [group for group in groups(stage.node.stores, lanes) if group[0].buffer == buffer]
    return lanes is not None and all(whole_lines(group[0], lanes, len(group), nontemporal) for group in own)


def _in_order(stores: Sequence[tuple[Stage, Index]], rows: Sequence[Var], length: int) -> bool:
    """Whether rows lie one behind the other, and every element of a row is written once."""
    behind = all(_steps_by(index, rows, length) for _, index in stores)
    places = [_places(index, stage.written(rows), rows) for stage, index in stores] if behind else []
    written = [p for p in places if p is not None]
    if not behind or len(written) < len(places):
        return False
    return bool(np.array_equal(np.sort(np.concatenate(written)), np.arange(length)))


def _steps_by(index: Index, rows: Sequence[Var], length: int) -> bool:
    step = length
    for row in reversed(rows):
        extent, found = row.extent.constant, index.coefficient(row)
        if extent is None or found is None or (extent > 1 and found.constant != step):
            return False
        step *= extent
    return True


def _places(index: Index, loops: Sequence[Var], rows: Sequence[Var]) -> np.ndarray | None:
    """What is written of the first row; None where the index is no sum of loops."""
    first = index.substitute(dict.fromkeys(rows, ZERO))
    places = np.zeros(1, dtype=np.int64)
    for v in loops:
        step = first.coefficient(v)
        if step is None or step.constant is None or v.extent.constant is None:
            return None
        places = (places[:, None] + step.constant * np.arange(v.extent.constant)).ravel()
        first = first.without(v)
    return places + first.constant if first.constant is not None else None
