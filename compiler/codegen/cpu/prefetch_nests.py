"""Where the statements that fetch memory stand in the stages of a kernel (schedule/loops/prefetch_stages.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.index import Var
from ...ir.plans.loop import Prefetch, RowPrefetch
from ...schedule.loops.write_combining import Stage as Written
from .prefetch import prefetch_lines
from .prefetch_rows import lookup_prefetches
from .scope import Scope
from .views.loop_kernels import RowPrefetchView, Stage
from .views.loops import Lanes, MapStage
from .views.reductions import HorizontalReduction, VerticalReduction


def with_stage_prefetches(view: Stage, found: Sequence[Prefetch] | None, vector: Var | None, scope: Scope) -> Stage:
    """The view of a stage with its fetches in front of each of its vectors; walks over columns have theirs."""
    if (
        not found
        or vector is None
        or not isinstance(view, MapStage | HorizontalReduction | VerticalReduction)
        or view.lanes is None
    ):
        return view
    return replace(view, lanes=fetching(view.lanes, found, vector, scope))


def fetching(lanes: Lanes, found: Sequence[Prefetch], vector: Var, scope: Scope) -> Lanes:
    """Lanes that fetch in front of each whole vector; rows that are moved have none."""
    if lanes.moved:
        return lanes
    return replace(lanes, main=(*prefetch_lines(found, vector, scope), *lanes.main))


def with_lookup_prefetches(
    views: Sequence[Stage],
    stages: Sequence[Written],
    plan: RowPrefetch,
    prefetch: RowPrefetchView,
    rows: Sequence[Var],
    scope: Scope,
) -> list[Stage]:
    """The views, a later one of which fetches the rows that the first one looks up."""
    view = views[plan.stage]
    if plan.stage == 0 or not isinstance(view, MapStage):
        return list(views)
    lines = lookup_prefetches(plan, prefetch, stages[plan.stage], rows, scope)
    return [*views[: plan.stage], replace(view, after=(*view.after, *lines)), *views[plan.stage + 1 :]]
