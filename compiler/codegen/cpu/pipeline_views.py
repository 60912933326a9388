"""Views of pipelined blocks of columns: their stages walk through the rows together (loops/pipeline_columns.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ...ir.buffers import Buffer
from ...ir.expr import Expr, Load, rewrite
from ...ir.index import Atom, Index, Var, of, product
from ...ir.nodes import Map, Nest, Reduce, Reduction
from ...ir.plans.loop import LoopPlan
from ...ir.rewrite import substituted
from ...machine.cpu_loops import COLUMN_LOOPS
from .emit import Emitter
from .prefetch_blocks import coming_rows
from .reduction_views import printed_reduction
from .scope import Scope
from .statements import emit_stores
from .views.loops import LocalView, Loop
from .views.pipelined_kernels import ColumnEnd, ColumnStage, ComingRegion, PipelinedColumnsKernel
from .views.reductions import ReductionView

Stage = Map | Reduce


def pipelined_columns_view(
    node: Nest, plan: LoopPlan, locals_: tuple[LocalView, ...], scope: Scope
) -> PipelinedColumnsKernel:
    """A kernel of a nest that has pipeline stages."""
    assert plan.pipeline is not None
    first = next(s for s in node.stages if isinstance(s, Reduce))
    row, column = first.rdims[0], first.dims[-1]
    text = Emitter(scope, None)
    row_loop, lane = (Loop(scope.loop(v), text.index(v.extent)) for v in (row, column))
    builder = _Builder(scope, row, column, frozenset(node.writes()), plan.pipeline.region)
    count = product(v.extent for v in node.dims)
    pipeline_stages = tuple(builder.pipeline_stage(node, number) for number in range(node.pipeline_stages[-1] + 1))
    return PipelinedColumnsKernel(
        "pipelined_columns.cpp.j2",
        scope.params(),
        text.index(count),
        text.index(count // builder.blocks),
        builder.blocks,
        plan.pipeline.several,
        text.index(row.extent * column.extent * builder.blocks),
        row_loop,
        lane,
        COLUMN_LOOPS.block_rows,
        plan.pipeline.together,
        pipeline_stages,
        locals_,
        scope.streams(),
    )


def stage_loops(
    scope: Scope, node: Nest, pipeline_stage: str, letters: Iterable[str]
) -> tuple[tuple[Var, ...], tuple[Loop, ...], dict[Atom, Index]]:
    """A pipeline stage's own variables for a nest's dimensions, its loops, and the dimensions as those variables."""
    own = tuple(Var(f"{v.name}_{pipeline_stage}", v.extent) for v in node.dims)
    loops = (
        Loop(scope.loop(v, f"{letter}_{pipeline_stage}"), Emitter(scope, None).index(v.extent))
        for v, letter in zip(own, letters, strict=True)
    )
    return own, tuple(loops), {v: of(new) for v, new in zip(node.dims, own, strict=True)}


@dataclass
class _Builder:
    """Makes the pipeline stages of one nest. made: what the nest writes to memory; blocks: of a region."""

    scope: Scope
    row: Var
    column: Var
    made: frozenset[Buffer]
    blocks: int
    names: Iterator[str] = field(default_factory=lambda: (f"acc{i}" for i in count()))

    def pipeline_stage(self, node: Nest, number: int) -> ColumnStage:
        _, loops, own = stage_loops(self.scope, node, str(number), self._letters(node))
        stages = [
            substituted(s, own)
            for s, pipeline_stage in zip(node.stages, node.pipeline_stages, strict=True)
            if pipeline_stage == number
        ]
        accs = {f.acc.name: next(self.names) for s in stages if isinstance(s, Reduce) for f in s.reductions}
        body = [s for s in stages if isinstance(s, Map) and self.row in s.dims]
        lines, reductions = self._body(body, [s for s in stages if isinstance(s, Reduce)], accs)
        ends = tuple(self._end(s, accs, reductions) for s in stages if s not in body)
        return ColumnStage(number, loops, self._next(node, number), lines, reductions, ends)

    def _body(
        self, maps: Sequence[Map], reductions: Sequence[Reduce], accs: dict[str, str]
    ) -> tuple[tuple[str, ...], tuple[ReductionView, ...]]:
        """The statements of a vector of a row, and the reductions of what they compute."""
        reduced = values_at_hand(maps, reductions)
        emitter = Emitter(self.scope, self.column)
        emitter.count_uses(f.value for f in reduced)
        emit_stores(emitter, *maps)
        views = tuple(printed_reduction(f, accs[f.acc.name], emitter) for f in reduced)
        return (*emitter.pre, *emitter.body), views

    def _end(self, stage: Stage, accs: dict[str, str], reductions: Sequence[ReductionView]) -> ColumnEnd:
        emitter = Emitter(self.scope, self.column, accs=accs, vector_accs=frozenset(accs))
        emit_stores(emitter, stage)
        own = {accs[f.acc.name] for f in stage.reductions} if isinstance(stage, Reduce) else set()
        return ColumnEnd(tuple(f for f in reductions if f.name in own), (*emitter.pre, *emitter.body))

    def _next(self, node: Nest, number: int) -> ComingRegion:
        """What the pipeline stage reads of memory in the region after its own."""
        stages = [
            s for s, pipeline_stage in zip(node.stages, node.pipeline_stages, strict=True) if pipeline_stage == number
        ]
        whole = [s for s in stages if isinstance(s, Reduce) or self.row in s.dims]
        values = [e for s in whole for e in (_reduced(s) if isinstance(s, Reduce) else (x.value for x in s.stores))]
        loads = dict.fromkeys(ld for v in values for ld in v.loads if ld.buffer not in self.made | set(node.locals))
        _, loops, first = stage_loops(self.scope, node, f"{number}_next", self._letters(node))
        operands = coming_rows(self.scope, f"next{number}_", loads, self.row, self.column, first, self.blocks)
        return ComingRegion(loops, operands)

    def _letters(self, node: Nest) -> Iterator[str]:
        return ("ij"[i] if i < 2 else f"i{i}" for i in range(len(node.dims)))


def values_at_hand(maps: Sequence[Map], reductions: Sequence[Reduce]) -> list[Reduction]:
    """The reductions of a pipeline stage, which need not load what its maps have just stored."""
    stored = {Load(s.buffer, s.index): s.value for m in maps for s in m.stores if s.buffer.dtype == s.value.dtype}

    def at_hand(e: Expr) -> Expr | None:
        return stored.get(e) if isinstance(e, Load) else None

    return [replace(f, value=rewrite(f.value, at_hand)) for r in reductions for f in r.reductions]


def _reduced(stage: Reduce) -> list[Expr]:
    return [f.value for f in stage.reductions]
