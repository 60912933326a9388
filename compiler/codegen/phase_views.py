"""Views of pipelined nests: blocks of columns whose phases go through the rows together (schedule/pipelined.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ..ir.buffers import Buffer
from ..ir.expr import Expr, Load, rewrite, substitute
from ..ir.index import Atom, Index, Var, of, product
from ..ir.nodes import Fold, Map, Nest, Reduce
from ..schedule.graph import map_expressions
from .ahead import fetches
from .emit import Emitter
from .fold_views import BLOCK_ROWS, SMALL_BLOCK, folded_view, rows_at_once
from .scope import Scope
from .statements import emit_stores
from .views.folds import FoldView
from .views.loops import LocalView, Loop
from .views.phase_kernels import ColumnEnd, PhaseKernel, PhaseView

Stage = Map | Reduce
#: rows that memory is read ahead, where blocks are not small
ROWS_AHEAD = 16


def phase_view(node: Nest, locals_: tuple[LocalView, ...], scope: Scope) -> PhaseKernel:
    """A kernel of a nest that has phases."""
    first = next(s for s in node.stages if isinstance(s, Reduce))
    row, column = first.rdims[0], first.dims[-1]
    text = Emitter(scope, None)
    row_loop, lane = (Loop(scope.loop(v), text.index(v.extent)) for v in (row, column))
    builder = _Builder(scope, row, column, frozenset(node.writes()))
    phases = tuple(builder.phase(node, number) for number in range(node.phases[-1] + 1))
    return PhaseKernel(
        "columns.cpp.j2",
        scope.params(),
        text.index(product(v.extent for v in node.dims)),
        text.index(row.extent * column.extent),
        row_loop,
        lane,
        rows_at_once(row.extent),
        BLOCK_ROWS,
        phases,
        locals_,
        scope.streams(),
    )


def phase_loops(
    scope: Scope, node: Nest, number: int, letters: Iterable[str]
) -> tuple[tuple[Var, ...], tuple[Loop, ...], dict[Atom, Index]]:
    """A phase's own variables for a nest's dimensions, its loops, and the dimensions as those variables."""
    own = tuple(Var(f"{v.name}_{number}", v.extent) for v in node.dims)
    loops = (
        Loop(scope.loop(v, f"{letter}_{number}"), Emitter(scope, None).index(v.extent))
        for v, letter in zip(own, letters, strict=True)
    )
    return own, tuple(loops), {v: of(new) for v, new in zip(node.dims, own, strict=True)}


@dataclass
class _Builder:
    """Makes the phases of one nest. made: what the nest writes to memory."""

    scope: Scope
    row: Var
    column: Var
    made: frozenset[Buffer]
    names: Iterator[str] = field(default_factory=lambda: (f"acc{i}" for i in count()))

    def phase(self, node: Nest, number: int) -> PhaseView:
        letters = ("ij"[i] if i < 2 else f"i{i}" for i in range(len(node.dims)))
        rows, loops, own = phase_loops(self.scope, node, number, letters)
        stages = [moved(s, own) for s, phase in zip(node.stages, node.phases, strict=True) if phase == number]
        accs = {f.acc.name: next(self.names) for s in stages if isinstance(s, Reduce) for f in s.folds}
        body = [s for s in stages if isinstance(s, Map) and self.row in s.dims]
        lines, folds = self._body(body, [s for s in stages if isinstance(s, Reduce)], accs)
        ends = tuple(self._end(s, accs, folds) for s in stages if s not in body)
        return PhaseView(number, loops, (*self._fetches(stages, rows), *lines), folds, ends)

    def _body(
        self, maps: Sequence[Map], reductions: Sequence[Reduce], accs: dict[str, str]
    ) -> tuple[tuple[str, ...], tuple[FoldView, ...]]:
        """The statements of a vector of a row, and the folds of what they compute."""
        folded = values_at_hand(maps, reductions)
        emitter = Emitter(self.scope, self.column)
        emitter.count_uses(f.value for f in folded)
        emit_stores(emitter, *maps)
        folds = tuple(folded_view(f, accs[f.acc.name], emitter) for f in folded)
        return (*emitter.pre, *emitter.body), folds

    def _end(self, stage: Stage, accs: dict[str, str], folds: Sequence[FoldView]) -> ColumnEnd:
        emitter = Emitter(self.scope, self.column, accs=accs, vector_accs=frozenset(accs))
        emit_stores(emitter, stage)
        own = {accs[f.acc.name] for f in stage.folds} if isinstance(stage, Reduce) else set()
        return ColumnEnd(tuple(f for f in folds if f.name in own), (*emitter.pre, *emitter.body))

    def _fetches(self, stages: Sequence[Stage], rows: Sequence[Var]) -> tuple[str, ...]:
        """Fetches what a later row, or the same row of the next block, reads of memory."""
        depth, block = self.row.extent, rows[-1]
        if (depth * self.column.extent).constant <= SMALL_BLOCK:  # type: ignore[operator]
            moved: dict[Atom, Index] = {block: of(block) + 1}
        else:
            ahead = of(self.row) + ROWS_AHEAD
            moved = {self.row: ahead % depth, block: of(block) + ahead // depth}
        whole = [s for s in stages if isinstance(s, Reduce) or self.row in s.dims]
        values = [e for s in whole for e in (_folded(s) if isinstance(s, Reduce) else (x.value for x in s.stores))]
        loads = [e for v in values for e in v.walk() if isinstance(e, Load) and e.buffer not in self.made]
        return fetches(self.scope, self.column, loads, (self.row,), moved, far=True)


def values_at_hand(maps: Sequence[Map], reductions: Sequence[Reduce]) -> list[Fold]:
    """The folds of a phase, which need not load what its maps have just stored."""
    stored = {Load(s.buffer, s.index): s.value for m in maps for s in m.stores if s.buffer.dtype == s.value.dtype}

    def at_hand(e: Expr) -> Expr | None:
        return stored.get(e) if isinstance(e, Load) else None

    return [replace(f, value=rewrite(f.value, at_hand)) for r in reductions for f in r.folds]


def _folded(stage: Reduce) -> list[Expr]:
    return [f.value for f in stage.folds]


def moved(stage: Stage, places: dict[Atom, Index]) -> Stage:
    return map_expressions(stage, lambda e: substitute(e, places), lambda i: i.substitute(places))
