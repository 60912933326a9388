"""Rows that are fetched some time before they are read (schedule/loops/row_prefetch.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.index import Var, product
from ...ir.plans.loop import RowPrefetch
from ...schedule.loops.write_combining import Stage
from .emit import Emitter
from .scope import Scope
from .views.loop_kernels import NextRow, RowPrefetchView
from .views.loops import Lanes, MapStage


def row_prefetch_view(plan: RowPrefetch, rows: Sequence[Var], scope: Scope) -> RowPrefetchView:
    """Where the rows start that are fetched before their turn; rows: the parallel loops of the kernel."""
    last, found = Emitter(scope, None).index(product(v.extent for v in rows) - 1), []
    for i, operand in enumerate(plan.operands):
        emitter = Emitter(scope, None, unchecked=True)
        start = f"{scope.buffer(operand.buffer)} + {emitter.index(operand.start)}"
        whole = str(operand.length) if operand.at_once else ""
        found.append(NextRow(f"next{i}", (*emitter.pre, *emitter.body), start, whole))
    return RowPrefetchView(plan.distance, last, tuple(found))


def lookup_prefetches(
    plan: RowPrefetch, prefetch: RowPrefetchView, stage: Stage, rows: Sequence[Var], scope: Scope
) -> tuple[str, ...]:
    """The statements that fetch rows to come in each iteration of a later stage: a share of each row."""
    (loop,) = [v for v in stage.loops(rows) if v is not stage.lanes]
    count, turn = loop.extent.constant or 1, scope.loop(loop)
    shares = zip(prefetch.rows, (operand.length // count for operand in plan.operands), strict=True)
    return tuple(f"prefetch_row_l2({row.name} + {turn} * {n}, {n});" for row, n in shares)


def with_row_prefetches(stage: MapStage, prefetch: RowPrefetchView, plan: RowPrefetch, vector: Var) -> MapStage:
    """The stage with the lines of long rows fetched vector by vector."""
    lines = []
    lanes = stage.lanes
    for row, operand in zip(prefetch.rows, plan.operands, strict=True):
        if operand.at_once:
            continue
        assert lanes is not None
        if lanes.moved:  # of a longer row, the hardware finds the rest
            lines.append(f"prefetch_row_l2({row.name}, {operand.first});")
            continue
        per_vector = -(-operand.length // max(vector.extent.constant or operand.length, 1))
        place = lanes.name if per_vector == 1 else f"{lanes.name} * {per_vector}"
        lines += [f"prefetch_lines<{per_vector}>({row.name} + {place});"]
    return replace(stage, lanes=_in_front(lanes, lines)) if lanes is not None else stage


def _in_front(lanes: Lanes, lines: Sequence[str]) -> Lanes:
    if lanes.moved:
        return replace(lanes, pre=(*lines, *lanes.pre))
    return replace(lanes, main=(*lines, *lanes.main))
