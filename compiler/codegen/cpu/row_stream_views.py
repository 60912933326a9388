"""Views of reductions of rows that are read as streams (schedule/loops/horizontal_reductions.py)."""

from __future__ import annotations

from dataclasses import replace

from ...ir.index import Var
from ...ir.plans.loop import RowStreams
from .prefetch import prefetch_lines
from .scope import Scope
from .views.loop_kernels import LoopKernel, RowStreamKernel
from .views.reductions import ArgRow, HorizontalReduction


def row_stream_view(kernel: LoopKernel, plan: RowStreams, vector: Var, scope: Scope) -> LoopKernel | RowStreamKernel:
    """The kernel with its rows as streams; those that look up in tables, or gather what they write, are none."""
    (stage,) = kernel.stages
    if not isinstance(stage, HorizontalReduction | ArgRow) or kernel.locals:
        return kernel
    best, positions = (stage.best, stage.positions) if isinstance(stage, ArgRow) else (stage, ())
    texts = (kernel.params, kernel.rows, kernel.count, kernel.work)
    fetched = prefetch_lines(plan.prefetch, vector, scope)
    best = replace(best, lanes=replace(best.lanes, main=(*fetched, *best.lanes.main)), piece=plan.piece)
    walk = "each_row_in_order" if plan.in_order else "each_stream_of_rows"
    return RowStreamKernel("row_streams.cpp.j2", *texts, best, positions, stage.finish, walk)
