"""Views of norms of samples: statistics of one while the one before it is written (schedule/loops/pipeline_samples.py).

What is written of a piece leaves memory time to fetch the next piece that is reduced: it lies in the first cache then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.index import (
    ZERO,
    Index,
    Var,
    product,
)
from ...ir.nodes import Map, Nest, Reduce
from ...ir.plans.loop import LoopPlan
from .emit import Emitter
from .reduction_views import loops_of
from .scope import Scope
from .views.loop_kernels import SampleKernel, Stage
from .views.loops import LocalView, MapStage

#: the view of a stage: its node and number, the plan, loops around its lanes
StageView = Callable[[Map | Reduce, int, LoopPlan, Sequence[Var], Scope], Stage]


def sample_view(
    node: Nest, plan: LoopPlan, locals_: tuple[LocalView, ...], scope: Scope, view: StageView
) -> SampleKernel:
    """A kernel of a nest that walks along two samples at a time."""
    assert node.walk is not None
    sample, walk = loops_of((*node.dims, node.walk), scope, Emitter(scope, None))
    outer = (*node.dims, node.walk)
    reductions: list[Stage] = []
    ends: list[Stage] = []
    work = ZERO
    for i, stage in enumerate(node.stages[:-1]):
        walked = node.walk in stage.dims
        (reductions if walked else ends).append(_view(stage, i, plan, outer if walked else node.dims, scope, view))
        work = work + product((*(v.extent for v in stage.dims[1:]), *_turns(stage)))
    last = node.stages[-1]
    written = _view(last, len(node.stages) - 1, plan, outer, scope, view)
    assert isinstance(last, Map)
    assert isinstance(written, MapStage)
    work = work + product(v.extent for v in last.dims[1:])
    return SampleKernel(
        "pipelined_samples.cpp.j2",
        scope.params(),
        sample,
        walk,
        Emitter(scope, None).index(work),
        tuple(reductions),
        tuple(ends),
        written,
        locals_,
        scope.streams(),
    )


def _view(stage: Map | Reduce, i: int, plan: LoopPlan, rows: Sequence[Var], scope: Scope, view: StageView) -> Stage:
    inner = [v for v in stage.dims[len(rows) :] if v is not plan.vector[i]]
    return view(stage, i, plan, inner, scope)


def _turns(stage: Map | Reduce) -> list[Index]:
    return [v.extent for v in stage.rdims] if isinstance(stage, Reduce) else []
