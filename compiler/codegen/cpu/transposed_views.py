"""Views of short rows that are transposed for SIMD across rows, block by block (loops/transpose_rows.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import Var, as_index, of
from ...ir.nodes import Map, Reduce, Store
from ...ir.plans.loop import Transpose, TransposedRows, VerticalPlan
from ...machine.cpu import LINE
from ...schedule.loops.vector_axis import keeps_indices
from .emit import Emitter
from .reduction_views import arg_view, loops_of
from .scope import Scope
from .statements import emit_stores, lanes_view
from .vertical_reduction_views import vertical_reduction_view
from .views.loop_kernels import LoopKernel, Stage
from .views.loops import LocalView, Loop, MapStage
from .views.transposes import TransposeIn, TransposeOut


def transposed_view(found: TransposedRows, vertical: Sequence[VerticalPlan | None], scope: Scope) -> LoopKernel:
    """The kernel of blocks of rows."""
    text = Emitter(scope, None)
    blocks = loops_of(found.blocks, scope, text)
    locals_ = [
        _local(b, b.name if b.name.startswith(("tile", "transposed")) else f"local{i}", scope)
        for i, b in enumerate(found.locals)
    ]
    count = text.product(v.extent for v in found.blocks)
    length, valid = text.index(found.element.extent), text.index(found.valid)
    stages: list[Stage] = [_transposed_in(t, found, length, valid, count, scope) for t in found.reads]
    for i, (stage, lane) in enumerate(found.stages):
        stages.append(_stage(stage, lane, found.element, vertical[i] if vertical else None, scope))
    for transpose in found.writes:
        flat = Buffer(f"{transpose.tile.name}_rows", transpose.buffer.dtype, transpose.tile.size, "local")
        locals_.append(_local(flat, flat.name, scope))
        stages.append(_transposed_out(transpose, flat.name, found, length, valid, scope))
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


def _transposed_in(
    transpose: Transpose, found: TransposedRows, length: str, valid: str, count: str, scope: Scope
) -> TransposeIn:
    text, block = Emitter(scope, None), found.blocks[-1]
    source = f"{scope.buffer(transpose.buffer)} + {text.index(transpose.start)}"
    followed = f"row + 1 < {count}" if transpose.onward else f"{scope.loops[block]} + 1 < {text.index(block.extent)}"
    return TransposeIn(found.rows, transpose.tile.name, source, text.index(transpose.pitch), length, valid, followed)


def _transposed_out(
    transpose: Transpose, flat: str, found: TransposedRows, length: str, valid: str, scope: Scope
) -> TransposeOut:
    lane = Var("lane", as_index(LINE))
    nontemporal = Emitter(scope, lane).nontemporal(
        Store(transpose.buffer, transpose.start + of(lane), Load(transpose.tile, of(lane)))
    )
    target = f"{scope.buffer(transpose.buffer)} + {Emitter(scope, None).index(transpose.start)}"
    return TransposeOut(found.rows, flat, transpose.tile.name, length, target, valid, nontemporal)


def _stage(stage: Map | Reduce, lane: Var, element: Var, vertical: VerticalPlan | None, scope: Scope) -> Stage:
    if isinstance(stage, Reduce):
        if keeps_indices(stage):
            return replace(arg_view(stage, lane, (), scope, None), form="arg_lanes")
        assert vertical is not None
        return replace(vertical_reduction_view(vertical, lane, (), scope), part_of=vertical.part)
    inner = [v for v in stage.dims if v == element]
    return _map(stage, lane, loops_of(inner, scope, Emitter(scope, None)), scope)


def _map(stage: Map, lane: Var, loops: tuple[Loop, ...], scope: Scope) -> MapStage:
    scope.loop(lane)
    main, tail = (Emitter(scope, lane, tail=p) for p in (False, True))
    emit_stores(main, stage)
    emit_stores(tail, stage)
    return MapStage(loops, lanes_view(lane, scope, main, tail))
