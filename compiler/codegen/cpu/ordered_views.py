"""Views of the nodes whose steps have an order (scans, scatters), and of routines."""

from __future__ import annotations

import json
from dataclasses import replace

from ...ir.buffers import Layout
from ...ir.dtypes import DTYPES
from ...ir.expr import Const
from ...ir.index import (
    ZERO,
    Index,
    Var,
    of,
    product,
)
from ...ir.nodes import Scan, Scatter
from ...ir.plans.loop import Form, LoopPlan, UpdatesPlan
from ...ir.program import Assert
from ...ir.routines import Blocks, CppSource, Custom, Routine
from ...lower.core.routines import ROUTINES
from ...schedule.loops.collapse import filling
from .emit import Emitter, literal
from .loop_views import map_stage
from .prefetch import prefetch_lines
from .row_scan_views import row_scan_view
from .scan_views import column_scan_view
from .scope import Scope
from .statements import lanes_view
from .views.loop_kernels import LoopKernel, ScatterKernel
from .views.loops import Loop, MapStage, RowsView
from .views.routines import AssertKernel, CustomKernel, NumberView, RoutineKernel, TensorView
from .views.scans import CarryView, ScanStage

SCALARS = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool": "bool"}


def scan_view(node: Scan, plan: LoopPlan) -> LoopKernel:
    """A row per element of `dims`, its steps one after the other; running sums a vector at a time; or rows of columns
    side by side."""
    if plan.form is Form.SCAN_COLUMNS:
        return column_scan_view(node, plan)
    if plan.form is Form.SCAN_LANES:
        return row_scan_view(node, plan)
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = Emitter(scope, None)
    rows = tuple(_loop(v, scope, text) for v in node.dims)
    step = _loop(node.step, scope, text)
    names = {c.acc.name: f"acc{i}" for i, c in enumerate(node.carries)}
    start, advance, finish = (Emitter(scope, None, accs=names) for _ in range(3))
    start.count_uses(c.start for c in node.carries)
    advance.count_uses(c.next for c in node.carries)
    carries = tuple(
        CarryView(names[c.acc.name], SCALARS[DTYPES[c.acc.dtype].compute], start.value(c.start), advance.value(c.next))
        for c in node.carries
    )
    finish.count_uses(s.value for s in node.stores)
    for store in node.stores:
        finish.store(store)
    stage = ScanStage(_statements(start), carries, step, _statements(advance), _statements(finish))
    count, work = text.product(v.extent for v in node.dims), text.index(node.step.extent)
    return LoopKernel("rows.cpp.j2", scope.params(), rows, count, work, (stage,))


def scatter_view(node: Scatter, plan: UpdatesPlan) -> ScatterKernel:
    """Two loops: the fill, as a map has it, and the updates in their order within each independent row."""
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = Emitter(scope, None)
    fill, vector = filling(node), plan.fill
    kept = [v for v in fill.dims if v is not vector]
    rows = tuple(_loop(v, scope, text) for v in kept)
    start = map_stage(fill, vector, scope)
    work = text.index(vector.extent) if vector is not None else "1"
    filled = RowsView(rows, text.product(v.extent for v in kept), work, start)
    updated = _updates(node, plan, scope)
    return ScatterKernel("scatter.cpp.j2", scope.params(), filled, updated)


def _updates(node: Scatter, plan: UpdatesPlan, scope: Scope) -> RowsView:
    """The updates; neighbours in memory that lead to places of their own are a vector, or at least innermost."""
    text = Emitter(scope, None)
    own, rest = node.udims[: node.parallel], node.udims[node.parallel :]
    columns = plan.columns
    rows = [v for v in own if v is not columns]
    loops = {v: _loop(v, scope, text) for v in node.udims}
    inner = tuple(loops[v] for v in rest)
    if columns is not None and plan.lanes:
        main, tail = (_updated(node, Emitter(scope, columns, tail=t)) for t in (False, True))
        lanes = lanes_view(columns, scope, main, tail)
        fetched = prefetch_lines(plan.prefetch, columns, scope)
        stage = MapStage(inner, replace(lanes, main=(*fetched, *lanes.main)))
    else:
        stage = MapStage(inner, None, _statements(_updated(node, text)))
    count, work = text.factor(product(v.extent for v in rows)), text.product(v.extent for v in rest)
    return RowsView(tuple(loops[v] for v in rows), count, work, stage, loops[columns] if columns else None)


def _updated(node: Scatter, emitter: Emitter) -> Emitter:
    emitter.count_uses(u.value for u in node.updates)
    for update in node.updates:
        emitter.store(update)
    return emitter


def routine_view(node: Routine) -> RoutineKernel:
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = Emitter(scope, None)
    block = Var("block", node.count)
    scope.loop(block, "block")

    def address(b: Blocks) -> str:
        offset = text.index(b.stride * of(block))
        return scope.buffer(b.buffer) if offset == "0" else f"{scope.buffer(b.buffer)} + {offset}"

    arguments = (*(address(b) for b in (*node.outputs, *node.inputs)), *(text.index(s) for s in node.sizes))
    work = text.product(s for s in node.sizes if s != ZERO)  # a 0 is a choice, no size
    count = text.index(node.count)
    function = ROUTINES[node.function].function
    return RoutineKernel("routine.cpp.j2", scope.params(), function, count, work, arguments)


def assert_view(node: Assert) -> AssertKernel:
    scope = Scope(frozenset(), node.origin.describe())
    condition = scope.buffer(node.condition)
    text = json.dumps(node.text, ensure_ascii=False)
    return AssertKernel("assert.cpp.j2", scope.params(), condition, text)


#: DLPack's code of each kind of element
_CODES = {"i": 0, "f": 2, "b": 6}


def custom_view(node: Custom) -> CustomKernel:
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = Emitter(scope, None)

    def tensor(block: Blocks, layout: Layout) -> TensorView:
        dtype = DTYPES[block.buffer.dtype]
        code = 1 if dtype.name == "u8" else 4 if dtype.name == "bf16" else _CODES[dtype.kind]
        offset = text.index(layout.offset)
        address = scope.buffer(block.buffer) + ("" if offset == "0" else f" + {offset}")
        shape, strides = (tuple(text.index(n) for n in part) for part in (layout.shape, layout.strides))
        return TensorView(address, code, 8 * dtype.size, shape, strides)

    assert isinstance(node.source, CppSource)
    blocks = zip((*node.outputs, *node.inputs), node.layouts, strict=False)  # behind them: what it writes over
    tensors = [tensor(b, layout) for b, layout in blocks]
    split = len(node.outputs)
    numbers = tuple(_number(n, text) for n in node.numbers)
    return CustomKernel(
        "custom.cpp.j2", scope.params(), node.source.function, tuple(tensors[:split]), tuple(tensors[split:]),
        numbers, node.source.text,
    )  # fmt: skip


def _number(value: int | float | Index, text: Emitter) -> NumberView:
    if isinstance(value, Index):
        return NumberView("integer", text.index(value))
    if isinstance(value, float):
        return NumberView("real", literal(Const(value, "f64")).text)
    return NumberView("integer", literal(Const(int(value), "i64")).text)


def _loop(var: Var, scope: Scope, text: Emitter) -> Loop:
    return Loop(scope.loop(var), text.index(var.extent))


def _statements(emitter: Emitter) -> tuple[str, ...]:
    return (*emitter.pre, *emitter.body)
