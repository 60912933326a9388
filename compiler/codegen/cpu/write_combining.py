"""Results whose rows are gathered in a cache and written past it in whole lines (kernels/loops/write_combining.h)."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtypes import DTYPES
from ...ir.index import Var
from ...ir.plans.loop import CombinedResult
from ...schedule.loops.write_combining import Stage
from .scope import Scope
from .views.loops import GatheredRow, LocalView


def gather(
    results: Sequence[CombinedResult], stages: Sequence[Stage], rows: Sequence[Var], scope: Scope
) -> tuple[GatheredRow, ...]:
    """The rows of the results that are gathered; from here on the scope has their stores go there.

    rows: the parallel loops, outermost first; every other loop of a stage is one of its row.
    """
    within = frozenset(v for stage in stages for v in stage.written(rows))
    gathered = []
    for result in results:
        for read in (b for stage in stages for b in stage.node.reads() if b not in scope.locals):
            scope.buffer(read)  # parameters come in the order of the statements
        name, cpp = scope.buffer(result.buffer), DTYPES[result.buffer.dtype].cpp
        row = GatheredRow(name, cpp, str(result.length), result.phase)
        scope.gathered[result.buffer] = (row.name, within)
        gathered.append(row)
    return tuple(gathered)


def memory_of(rows: Sequence[GatheredRow]) -> tuple[LocalView, ...]:
    """The memory that rows are gathered in."""
    return tuple(LocalView(row.memory, row.type, f"{row.length} + kGathered<{row.type}>") for row in rows)
