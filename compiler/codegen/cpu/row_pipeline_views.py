"""Views of pipelined rows: the stages run along the lanes together, each a row behind (loops/pipeline_rows.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ...ir.buffers import Buffer
from ...ir.index import Var
from ...ir.nodes import Map, Nest, Reduce
from ...ir.plans.loop import LoopPlan
from ...ir.rewrite import substituted
from ...schedule.loops.horizontal_reductions import row_piece
from ...schedule.loops.loop_plan import stages_of
from .emit import Emitter
from .pipeline_views import Stage, stage_loops, values_at_hand
from .prefetch import prefetch_lines
from .reduction_views import printed_reduction
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loops import LocalView, Loop
from .views.pipelined_kernels import PipelinedRowsKernel, PipelinedRowStage
from .views.reductions import ReductionView
from .write_combining import gather, memory_of


def pipelined_rows_view(
    node: Nest, plan: LoopPlan, locals_: tuple[LocalView, ...], scope: Scope
) -> PipelinedRowsKernel:
    """A kernel of a nest whose pipeline stages run a row apart."""
    first = next(s for s in node.stages if isinstance(s, Reduce))
    lane = first.rdims[0]
    text = Emitter(scope, None)
    loop = Loop(scope.loop(lane, "j"), text.index(lane.extent))
    combined = gather(plan.combined, stages_of(node, plan), node.dims, scope)
    builder = _Builder(scope, lane, frozenset(node.writes()))
    pipeline_stages = tuple(
        builder.pipeline_stage(node, plan, number) for number in range(node.pipeline_stages[-1] + 1)
    )
    return PipelinedRowsKernel(
        "pipelined_rows.cpp.j2",
        scope.params(),
        text.product(v.extent for v in node.dims),
        text.index(lane.extent * len(pipeline_stages)),
        loop,
        pipeline_stages[0].lanes.whole,
        row_piece(lane),
        pipeline_stages,
        (*locals_, *memory_of(combined)),
        scope.streams(),
        combined,
    )


@dataclass
class _Builder:
    """Makes the pipeline stages of one nest. made: what the nest writes to memory."""

    scope: Scope
    lane: Var
    made: frozenset[Buffer]
    accs: Iterator[str] = field(default_factory=lambda: (f"acc{i}" for i in count()))
    last: Emitter | None = None

    def pipeline_stage(self, node: Nest, plan: LoopPlan, number: int) -> PipelinedRowStage:
        letters = ("i" if i == 0 else f"i{i}" for i in range(len(node.dims)))
        _, loops, own = stage_loops(self.scope, node, str(number), letters)
        stages = [
            s for s, pipeline_stage in zip(node.stages, node.pipeline_stages, strict=True) if pipeline_stage == number
        ]
        found = (replace(p, index=p.index.substitute(own)) for p in plan.fetched(number))
        prefetch = prefetch_lines(found, self.lane, self.scope)
        stages = [substituted(s, own) for s in stages]
        names = {f.acc.name: next(self.accs) for s in stages if isinstance(s, Reduce) for f in s.reductions}
        whole = [s for s in stages if isinstance(s, Map) and self.lane in s.dims]
        main, tail = (self._emitter(p) for p in (False, True))
        reductions = self._body(whole, [s for s in stages if isinstance(s, Reduce)], names, main, tail)
        main.body[:0] = prefetch
        ends = tuple(self._end(s, names) for s in stages if s not in whole)
        return PipelinedRowStage(number, loops, lanes_view(self.lane, self.scope, main, tail), reductions, ends)

    def _emitter(self, tail: bool) -> Emitter:
        """Names of what stands in front of the loop go on from pipeline stage to pipeline stage."""
        emitter = Emitter(self.scope, self.lane, tail=tail)
        if self.last is not None:
            emitter.behind(self.last)
        self.last = emitter if tail else self.last
        return emitter

    def _body(
        self, maps: Sequence[Map], reductions: Sequence[Reduce], accs: dict[str, str], main: Emitter, tail: Emitter
    ) -> tuple[ReductionView, ...]:
        """Emits what is done with a vector of a row; its reductions."""
        reduced = values_at_hand(maps, reductions)
        for emitter in (main, tail):
            emitter.count_uses(f.value for f in reduced)
            emit_stores(emitter, *maps)
        return tuple(printed_reduction(f, accs[f.acc.name], main, tail) for f in reduced)

    def _end(self, stage: Stage, accs: dict[str, str]) -> tuple[str, ...]:
        emitter = Emitter(self.scope, None, accs=accs)
        emit_stores(emitter, stage)
        return (*emitter.pre, *emitter.body)
