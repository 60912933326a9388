"""Views of short rows that are transposed for SIMD across rows, block by block (loops/transpose_rows.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import Var, as_index, of, product
from ...ir.nodes import Map, Reduce, Store
from ...ir.plans.loop import Transpose, TransposedRows, VerticalPlan
from ...machine.cpu import LINE
from ...schedule.loops.vector_axis import keeps_places
from .emit import Emitter
from .reduction_views import arg_view, loops_of
from .scope import Scope
from .statements import emit_stores, lanes_view
from .vertical_reduction_views import lane_fold_view
from .views.loop_kernels import LoopKernel, Stage
from .views.loops import LocalView, Loop, MapStage
from .views.transposes import TurnBack, TurnRows


def turned_view(found: TransposedRows, vertical: Sequence[VerticalPlan | None], scope: Scope) -> LoopKernel:
    """The kernel of blocks of rows."""
    text = Emitter(scope, None)
    blocks = loops_of(found.blocks, scope, text)
    locals_ = [
        _local(b, b.name if b.name.startswith(("tile", "turned")) else f"local{i}", scope)
        for i, b in enumerate(found.locals)
    ]
    count = text.index(product(v.extent for v in found.blocks))
    length, valid = text.index(found.element.extent), text.index(found.valid)
    stages: list[Stage] = [_turned(t, found, length, valid, count, scope) for t in found.reads]
    for i, (stage, lane) in enumerate(found.stages):
        stages.append(_stage(stage, lane, found.element, vertical[i] if vertical else None, scope))
    for turn in found.writes:
        flat = Buffer(f"{turn.tile.name}_rows", turn.buffer.dtype, turn.tile.size, "local")
        locals_.append(_local(flat, flat.name, scope))
        stages.append(_turned_back(turn, flat.name, found, length, valid, scope))
    work = found.element.extent * (found.rows * len(stages))
    return LoopKernel(
        "rows.cpp.j2",
        scope.params(),
        blocks,
        count,
        text.index(work),
        tuple(stages),
        tuple(locals_),
        scope.streams(),
    )


def _local(buffer: Buffer, name: str, scope: Scope) -> LocalView:
    scope.locals[buffer] = name
    return LocalView(name, DTYPES[buffer.dtype].cpp, Emitter(scope, None).index(buffer.size))


def _turned(turn: Transpose, found: TransposedRows, length: str, valid: str, count: str, scope: Scope) -> TurnRows:
    text, block = Emitter(scope, None), found.blocks[-1]
    source = f"{scope.buffer(turn.buffer)} + {text.index(turn.start)}"
    followed = f"row + 1 < {count}" if turn.onward else f"{scope.loops[block]} + 1 < {text.index(block.extent)}"
    return TurnRows(found.rows, turn.tile.name, source, text.index(turn.pitch), length, valid, followed)


def _turned_back(turn: Transpose, flat: str, found: TransposedRows, length: str, valid: str, scope: Scope) -> TurnBack:
    lane = Var("lane", as_index(LINE))
    past = Emitter(scope, lane).past(Store(turn.buffer, turn.start + of(lane), Load(turn.tile, of(lane))))
    target = f"{scope.buffer(turn.buffer)} + {Emitter(scope, None).index(turn.start)}"
    return TurnBack(found.rows, flat, turn.tile.name, length, target, valid, past)


def _stage(stage: Map | Reduce, lane: Var, element: Var, vertical: VerticalPlan | None, scope: Scope) -> Stage:
    if isinstance(stage, Reduce):
        if keeps_places(stage):
            return replace(arg_view(stage, lane, (), scope, None), form="arg_lanes")
        assert vertical is not None
        return replace(lane_fold_view(vertical, lane, (), scope), part_of=vertical.part)
    inner = [v for v in stage.dims if v == element]
    return _map(stage, lane, loops_of(inner, scope, Emitter(scope, None)), scope)


def _map(stage: Map, lane: Var, loops: tuple[Loop, ...], scope: Scope) -> MapStage:
    scope.loop(lane)
    full, part = (Emitter(scope, lane, part=p) for p in (False, True))
    emit_stores(full, stage)
    emit_stores(part, stage)
    return MapStage(loops, lanes_view(lane, scope, full, part))
