"""Results whose rows are combined in a cache and written by non-temporal stores, in whole lines
(kernels/loops/write_combining.h)."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtypes import DTYPES
from ...ir.index import Var
from ...ir.plans.loop import CombinedResult
from ...schedule.loops.write_combining import Stage
from .scope import Scope
from .views.loops import CombinedRow, LocalView


def gather(
    results: Sequence[CombinedResult], stages: Sequence[Stage], rows: Sequence[Var], scope: Scope
) -> tuple[CombinedRow, ...]:
    """The rows of the results that are combined; from here on the scope has their stores go there.

    rows: the parallel loops, outermost first; every other loop of a stage is one of its row.
    """
    within = frozenset(v for stage in stages for v in stage.written(rows))
    combined = []
    for result in results:
        for read in (b for stage in stages for b in stage.node.reads() if b not in scope.locals):
            scope.buffer(read)  # parameters come in the order of the statements
        name, cpp = scope.buffer(result.buffer), DTYPES[result.buffer.dtype].cpp
        row = CombinedRow(name, cpp, str(result.length), result.pipeline_stage)
        scope.combined[result.buffer] = (row.name, within)
        combined.append(row)
    return tuple(combined)


def memory_of(rows: Sequence[CombinedRow]) -> tuple[LocalView, ...]:
    """The memory that rows are combined in."""
    return tuple(LocalView(row.memory, row.type, f"{row.length} + kCombined<{row.type}>") for row in rows)
