"""Views of scans whose lanes run across the steps: every column of a block carries its own values."""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.index import Var, as_index
from ...ir.nodes import Scan
from ...ir.plans.loop import ColumnWalk, LoopPlan
from .emit import Emitter
from .prefetch import prefetch_lines
from .reduction_views import SCALARS, VECTORS, loops_of
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loop_kernels import LoopKernel
from .views.loops import Loop
from .views.scans import LaneCarry, ScanColumns


def column_scan_view(node: Scan, plan: LoopPlan) -> LoopKernel:
    """Blocks of columns, some steps at a time."""
    (vector,) = plan.vector
    (walk,) = plan.walk
    assert vector is not None
    assert walk is not None
    scope = Scope(frozenset(node.writes()), node.origin.describe(), nontemporal=plan.nontemporal)
    text = Emitter(scope, None)
    blocks = (vector.extent + (walk.columns - 1)) // as_index(walk.columns)
    kept = node.dims[:-1]
    rows = (*loops_of(kept, scope, text), Loop("block", text.index(blocks)))
    stage = _stage(node, vector, walk, scope)
    count = text.product([*(v.extent for v in kept), blocks])
    width = min(vector.extent.constant or walk.columns, walk.columns)
    work = text.index(node.step.extent * width)
    return LoopKernel("rows.cpp.j2", scope.params(), rows, count, work, (stage,), (), scope.streams())


def _stage(node: Scan, vector: Var, walk: ColumnWalk, scope: Scope) -> ScanColumns:
    (step,) = loops_of([node.step], scope, Emitter(scope, None))
    lane = scope.loop(vector)
    names = {c.acc.name: f"acc{i}" for i, c in enumerate(node.carries)}
    start = Emitter(scope, None, accs=names)
    start.count_uses(c.start for c in node.carries)
    base_offsets = [start.value(c.start) for c in node.carries]
    forms = [_step(node, vector, scope, names, tail) for tail in (False, True)]
    (advance, main, following), (advance_tail, tail, following_tail) = forms
    carries = tuple(
        LaneCarry(names[c.acc.name], VECTORS[kind], SCALARS[kind], first, whole, last)
        for c, first, whole, last in zip(node.carries, base_offsets, following, following_tail, strict=True)
        for kind in (DTYPES[c.acc.dtype].compute,)
    )
    begin, extent = f"block * {walk.columns}", Emitter(scope, None).index(vector.extent)
    return ScanColumns(
        (*start.pre, *start.body),
        carries,
        step,
        lanes_view(vector, scope, main, tail, lane),
        (*advance.pre, *advance.body),
        (*advance_tail.pre, *advance_tail.body),
        (*main.pre, *main.body),
        (*tail.pre, *tail.body),
        begin,
        f"smaller({begin} + {walk.columns}, {extent})",
        walk.columns,
        prefetch_lines(walk.prefetch, vector, scope),
    )


def _step(
    node: Scan, vector: Var, scope: Scope, names: dict[str, str], tail: bool
) -> tuple[Emitter, Emitter, list[str]]:
    """What leads to the next values, what stores them, and the next values themselves."""
    advance, finish = (Emitter(scope, vector, tail, names, frozenset(names)) for _ in range(2))
    advance.count_uses(c.next for c in node.carries)
    following = [advance.lanes(c.next) for c in node.carries]
    emit_stores(finish.behind(advance), node)
    return advance, finish, following
