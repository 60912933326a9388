"""Views of running sums and products whose steps are neighbours in memory: the lanes run along the steps.

for s:  acc = acc + x[s], y[s] = acc      ->      for s by W:  y[s..] = acc + running sums of x[s..], acc = the last
"""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr
from ...ir.index import Var
from ...ir.nodes import Scan
from ...ir.plans.loop import LoopPlan
from ...schedule.loops.scan_form import running_value
from ...schedule.loops.write_combining import Stage
from .emit import Emitter
from .prefetch_rows import row_prefetch_view
from .reduction_views import VECTORS, loops_of
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loop_kernels import LoopKernel
from .views.scans import ScanRow
from .write_combining import gather, memory_of


def row_scan_view(node: Scan, plan: LoopPlan) -> LoopKernel:
    """A running sum along memory, a vector at a time."""
    value = running_value(node)
    assert value is not None
    scope = Scope(frozenset(node.writes()), node.origin.describe(), nontemporal=plan.nontemporal)
    text = Emitter(scope, None)
    rows = loops_of(node.dims, scope, text)
    combined = gather(plan.combined, [Stage(node, node.step)], node.dims, scope)
    stage = _stage(node, value, scope)
    count, work = text.product(v.extent for v in node.dims), text.index(node.step.extent)
    prefetch = None if plan.row_prefetch is None else row_prefetch_view(plan.row_prefetch, node.dims, scope)
    texts = (rows, count, work, (stage,), memory_of(combined), scope.streams())
    return LoopKernel("rows.cpp.j2", scope.params(), *texts, prefetch=prefetch, combined=combined)


#: functions of kernels/vec/reduce.h
RUNNING = {"add": "running_sum", "mul": "running_product"}


def _carried(dtype: str, first: str) -> tuple[str, str]:
    """The type of what goes from vector to vector, and the first of it."""
    if dtype == "i64":
        return "hi64", first
    return "hf64", f"(double){first}"


def _stage(node: Scan, value: Expr, scope: Scope) -> ScanRow:
    (carry,) = node.carries
    names = {carry.acc.name: "acc0"}
    start = Emitter(scope, None)
    start.count_uses([carry.start])
    first = start.value(carry.start)
    scope.loop(node.step)
    (advance, main, summed), (advance_tail, tail, summed_tail) = (
        _step(node, value, scope, names, tail) for tail in (False, True)
    )
    assert isinstance(carry.next, Call)
    return ScanRow(
        (*start.pre, *start.body),
        RUNNING[carry.next.op],
        "acc0",
        VECTORS[DTYPES[carry.acc.dtype].compute],
        *_carried(carry.acc.dtype, first),
        lanes_view(node.step, scope, main, tail),
        (*advance.pre, *advance.body),
        (*advance_tail.pre, *advance_tail.body),
        summed,
        summed_tail,
    )


def _step(node: Scan, value: Expr, scope: Scope, names: dict[str, str], tail: bool) -> tuple[Emitter, Emitter, str]:
    """What leads to the values that are summed, what stores the sums, and the values."""
    step: Var = node.step
    advance, finish = (Emitter(scope, step, tail, names, frozenset(names)) for _ in range(2))
    advance.count_uses([value])
    text = advance.lanes(value)
    emit_stores(finish.behind(advance), node)
    return advance, finish, text
