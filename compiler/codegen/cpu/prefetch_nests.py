"""What the stages of a nest fetch ahead: rows that follow, pieces that are joined, rows that are looked up.

    for i  { for j  m = max(m, x[i*J + j]),  for j  s += exp(x[i*J + j] - m) }
        ->      for i  { for j  m = ..,  for j  { fetch x[(i + 1)*J + j],  s += .. } }

A stage that reads its row again, or computes for long, leaves memory nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.index import Var, of, product
from ...ir.nodes import Map, Reduce
from ...ir.plans.loop import RowPrefetch
from ...schedule.cost.estimates import work as cost
from ...schedule.loops.streams import widest
from ...schedule.loops.write_combining import Stage as Written
from .prefetch import AHEAD_BYTES, fetches, stream_ahead
from .prefetch_rows import looked_up_fetches
from .reduction_views import LONG_WORK
from .scope import Scope
from .views.loop_kernels import Ahead, Stage
from .views.loops import MapStage
from .views.reductions import ColumnFold, LaneFold, RowFold

#: elements of a row that are worth fetching while the row before it is computed upon for long, or read again; rows that
#: the first cache does not hold beside it only while a stage computes for long
LEAST_FETCHED, MOST_FETCHED = 512, 8192
#: turns of a window that those of the row before have not read, where they lie at most so many rows apart
NEW_TAPS = 2


def with_stage_fetches(view: Stage, stages: Sequence[Written], i: int, rows: Sequence[Var], scope: Scope) -> Stage:
    """The view of stage `i` of a nest over `rows`, with the statements that fetch what comes later."""
    node, vector = stages[i].node, stages[i].lanes
    assert isinstance(node, Map | Reduce)
    if len(stages) > 1 and all(isinstance(stage.node, Map) for stage in stages) and not scope.locals:
        return _joined(view, node, vector, rows, scope)
    if i == 0 and isinstance(view, LaneFold):
        return _next_windows(view, node, vector, rows, scope)
    return _next_row(view, node, vector, rows, scope, again=i > 0)


def with_looked_up(
    views: Sequence[Stage],
    stages: Sequence[Written],
    plan: RowPrefetch,
    ahead: Ahead,
    rows: Sequence[Var],
    scope: Scope,
) -> list[Stage]:
    """The views, a later one of which fetches the rows that the first one looks up."""
    view = views[plan.stage]
    if plan.stage == 0 or not isinstance(view, MapStage):
        return list(views)
    lines = looked_up_fetches(plan, ahead, stages[plan.stage], rows, scope)
    return [*views[: plan.stage], replace(view, after=(*view.after, *lines)), *views[plan.stage + 1 :]]


def _next_row(
    stage: Stage, node: Map | Reduce, vector: Var | None, rows: Sequence[Var], scope: Scope, again: bool
) -> Stage:
    """What the next row reads is fetched while memory has nothing to do: a stage computes for long, or the row is read
    `again`."""
    values = [f.value for f in node.folds] if isinstance(node, Reduce) else [s.value for s in node.stores]
    inner = (*node.dims[len(rows) :], *(node.rdims if isinstance(node, Reduce) else ()))
    size = product(v.extent for v in inner).constant or 0
    idle = sum(map(cost, values)) >= LONG_WORK or (again and size <= MOST_FETCHED and not isinstance(stage, ColumnFold))
    if vector is None or not rows or not idle or size < LEAST_FETCHED:  # without rows the whole nest is one
        return stage
    far = not isinstance(stage, RowFold)
    ahead = -(-AHEAD_BYTES // (size * widest(values)))  # rows: the next one, or more short ones
    lines = fetches(scope, vector, values, rows[-1:], {rows[-1]: of(rows[-1]) + ahead}, far)
    if isinstance(stage, ColumnFold):
        return replace(stage, walk=replace(stage.walk, ahead=lines))
    if isinstance(stage, MapStage | RowFold) and stage.lanes is not None:
        return replace(stage, lanes=replace(stage.lanes, full=(*lines, *stage.lanes.full)))
    return stage


def _joined(stage: Stage, node: Map | Reduce, vector: Var | None, rows: Sequence[Var], scope: Scope) -> Stage:
    """Pieces of rows that others lie between are joined: the hardware finds the first lines of each too late."""
    if not isinstance(stage, MapStage) or stage.lanes is None or stage.lanes.moved or vector is None or not rows:
        return stage
    values = [s.value for s in node.stores]
    if all(load.index.coefficient(rows[-1]) == vector.extent for value in values for load in value.loads):
        return stage
    lines = stream_ahead(scope, vector, values, rows[-1], rows)
    return replace(stage, lanes=replace(stage.lanes, full=(*lines, *stage.lanes.full)))


def _next_windows(
    stage: LaneFold, node: Map | Reduce, vector: Var | None, rows: Sequence[Var], scope: Scope
) -> LaneFold:
    """What the windows of the next row read last is fetched: the following stages leave memory nothing to do."""
    if not isinstance(node, Reduce) or stage.lanes is None or vector is None or not rows or len(node.rdims) != 1:
        return stage
    (tap,) = node.rdims
    inner = product(v.extent for v in node.dims[len(rows) :]).constant or 0
    if inner < LEAST_FETCHED or (tap.extent.constant or 0) < NEW_TAPS:
        return stage
    following = rows[-1]
    lines = [
        line
        for turn in range(1, NEW_TAPS + 1)
        for line in fetches(
            scope,
            vector,
            [f.value for f in node.folds],
            (following,),
            {following: of(following) + 1, tap: tap.extent - turn},
        )
    ]
    return replace(stage, lanes=replace(stage.lanes, full=(*dict.fromkeys(lines), *stage.lanes.full)))
