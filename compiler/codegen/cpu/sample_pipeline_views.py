"""Views of norms of samples: statistics of one while the one before it is written (schedule/loops/pipeline_samples.py).

What is written of a piece leaves memory time to fetch the next piece that is folded: it lies in the first cache then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...ir.index import (
    ZERO,
    Atom,
    Index,
    Var,
    of,
    product,
)
from ...ir.nodes import Map, Nest, Reduce
from ...ir.plans.loop import LoopPlan
from .emit import Emitter
from .prefetch import fetches
from .reduction_views import loops_of
from .scope import Scope
from .views.loop_kernels import SampleKernel, Stage
from .views.loops import LocalView, MapStage
from .views.reductions import ColumnFold

#: the view of a stage: its node, the loop of its lanes, loops around them
StageView = Callable[[Map | Reduce, Var | None, Sequence[Var], Scope], Stage]


def sample_view(
    node: Nest, plan: LoopPlan, locals_: tuple[LocalView, ...], scope: Scope, view: StageView
) -> SampleKernel:
    """A kernel of a nest that walks along two samples at a time."""
    assert node.walk is not None
    sample, walk = loops_of((*node.dims, node.walk), scope, Emitter(scope, None))
    outer = (*node.dims, node.walk)
    folds: list[Stage] = []
    ends: list[Stage] = []
    work = ZERO
    for stage, vector in zip(node.stages[:-1], plan.vector, strict=False):
        walked = node.walk in stage.dims
        rows = outer if walked else node.dims
        made = _view(stage, rows, vector, scope, view)
        (folds if walked else ends).append(_without_fetches(made) if walked else made)
        work = work + product((*(v.extent for v in stage.dims[1:]), *_turns(stage)))
    last = node.stages[-1]
    written = _view(last, outer, plan.vector[-1], scope, view)
    assert isinstance(last, Map)
    assert isinstance(written, MapStage)
    work = work + product(v.extent for v in last.dims[1:])
    return SampleKernel(
        "samples.cpp.j2",
        scope.params(),
        sample,
        walk,
        Emitter(scope, None).index(work),
        tuple(folds),
        tuple(ends),
        _fetching_next(written, last, outer, scope, plan.vector[-1]),
        locals_,
        scope.streams(),
    )


def _view(stage: Map | Reduce, rows: Sequence[Var], vector: Var | None, scope: Scope, view: StageView) -> Stage:
    return view(stage, vector, [v for v in stage.dims[len(rows) :] if v is not vector], scope)


def _turns(stage: Map | Reduce) -> list[Index]:
    return [v.extent for v in stage.rdims] if isinstance(stage, Reduce) else []


def _without_fetches(stage: Stage) -> Stage:
    """A fold of what lies in the first cache."""
    return replace(stage, walk=replace(stage.walk, ahead=())) if isinstance(stage, ColumnFold) else stage


def _fetching_next(stage: MapStage, node: Map, rows: tuple[Var, ...], scope: Scope, vector: Var | None) -> MapStage:
    """The map of a piece, which fetches the piece of the next sample that is folded after the one that is at hand."""
    if stage.lanes is None or vector is None:
        return stage
    moved: dict[Atom, Index] = {v: of(v) + 1 for v in rows}
    fetched = fetches(scope, vector, [s.value for s in node.stores], rows[-1:], moved)
    return replace(stage, lanes=replace(stage.lanes, full=(*fetched, *stage.lanes.full)))
