"""Views of running sums and products whose steps are neighbours in memory: the lanes run along the steps.

    for s:  acc = acc + x[s], y[s] = acc      ->      for s by W:  y[s..] = acc + running sums of x[s..], acc = the last

Only of integers, which wrap in whatever order, and where the sums are wider than what is summed: they are exact or
nearly so, in whatever order, and overflow where those of single steps do. Products only in float64 of float32, which
has the exponents for those of a vector; a product that leaves float64's range and comes back may be right where steps
one by one would stay at 0 or infinity.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Call, Expr
from ...ir.index import ONE, Index, Var, product
from ...ir.nodes import Scan
from ...ir.plans.loop import LoopPlan
from ...schedule.loops.vector_axis import LEAST_LANES
from .emit import Emitter
from .prefetch_rows import short_ahead
from .reduction_views import VECTORS, loops_of
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loop_kernels import LoopKernel
from .views.scans import ScanRow
from .write_combining import Stage, gather, memory_of


def row_scan_view(node: Scan, plan: LoopPlan) -> LoopKernel | None:
    """A running sum along memory, a vector at a time; None for other scans."""
    value = _folded(node)
    if value is None or not _along(node, value) or (node.step.extent.constant or LEAST_LANES) < LEAST_LANES:
        return None
    scope = Scope(frozenset(node.writes()), node.origin.describe(), nontemporal=plan.nontemporal)
    text = Emitter(scope, None)
    rows = loops_of(node.dims, scope, text)
    written = Stage(node, node.step)
    gathered = gather([written], node.dims, scope)
    stage = _stage(node, value, scope)
    count, work = text.index(product(v.extent for v in node.dims)), text.index(node.step.extent)
    ahead = short_ahead([written], node.dims, scope) if gathered else None
    texts = (rows, count, work, (stage,), memory_of(gathered), scope.streams())
    return LoopKernel("rows.cpp.j2", scope.params(), *texts, ahead=ahead, gathered=gathered)


#: functions of kernels/vec/reduce.h
RUNNING = {"add": "running_sum", "mul": "running_product"}


def _folded(node: Scan) -> Expr | None:
    """What is added or multiplied in each step: one narrower number, or an integer."""
    if len(node.carries) != 1:
        return None
    (carry,) = node.carries
    match carry.next:
        case Call("add", (Acc() as acc, value)) if acc == carry.acc and value.dtype == "i64":
            return value
        case Call(("add" | "mul") as op, (Acc() as acc, Call("cast", (narrow,)) as value)) if acc == carry.acc:
            if op == "mul" and (value.dtype, narrow.dtype) != ("f64", "f32"):
                return None
            wider = DTYPES[narrow.dtype].size < DTYPES[value.dtype].size
            floats = DTYPES[narrow.dtype].kind == DTYPES[value.dtype].kind == "f"
            return value if wider and floats else None
    return None


def _carried(dtype: str, first: str) -> tuple[str, str]:
    """The type of what goes from vector to vector, and the first of it."""
    if dtype == "i64":
        return "hi64", first
    return "hf64", f"(double){first}"


def _along(node: Scan, value: Expr) -> bool:
    """Whether neighbours in memory are steps, of all that is read and written."""
    read: Iterable[Index] = [ld.index for e in (value, *(s.value for s in node.stores)) for ld in e.loads]
    steps = [index.coefficient(node.step) for index in read]
    dense = all(step is not None and (not step.terms or step == ONE) for step in steps)
    return dense and all(s.index.coefficient(node.step) == ONE for s in node.stores)


def _stage(node: Scan, value: Expr, scope: Scope) -> ScanRow:
    (carry,) = node.carries
    names = {carry.acc.name: "acc0"}
    start = Emitter(scope, None)
    start.count_uses([carry.start])
    first = start.value(carry.start)
    scope.loop(node.step)
    (advance, full, summed), (advance_part, part, summed_part) = (
        _step(node, value, scope, names, part) for part in (False, True)
    )
    assert isinstance(carry.next, Call)
    return ScanRow(
        (*start.pre, *start.body),
        RUNNING[carry.next.op],
        "acc0",
        VECTORS[DTYPES[carry.acc.dtype].compute],
        *_carried(carry.acc.dtype, first),
        lanes_view(node.step, scope, full, part),
        (*advance.pre, *advance.body),
        (*advance_part.pre, *advance_part.body),
        summed,
        summed_part,
    )


def _step(node: Scan, value: Expr, scope: Scope, names: dict[str, str], part: bool) -> tuple[Emitter, Emitter, str]:
    """What leads to the values that are summed, what stores the sums, and the values."""
    step: Var = node.step
    advance, finish = (Emitter(scope, step, part, names, frozenset(names)) for _ in range(2))
    advance.count_uses([value])
    text = advance.lanes(value)
    emit_stores(finish.behind(advance), node)
    return advance, finish, text
