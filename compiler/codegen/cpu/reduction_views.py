"""Views of reductions: along the lanes, across many rows of memory, and those that keep a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Const
from ...ir.index import (
    Var,
    row_major,
)
from ...ir.nodes import Reduce, Reduction
from ...ir.ops import OPS, Precedence
from ...ir.plans.loop import ColumnWalk, HorizontalPlan
from ...schedule.loops.interleaved_streams import widest
from ...schedule.loops.vector_axis import SCALAR_REDUCTIONS
from .emit import Emitter, literal
from .prefetch import prefetch_lines
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loops import Loop
from .views.reductions import (
    ArgColumns,
    ArgReduction,
    ArgRow,
    ColumnReduction,
    HorizontalReduction,
    ReductionView,
    Walk,
    WelfordColumns,
)

VECTORS = {"f32": "vf32", "f64": "vf64", "i32": "vi32", "i64": "vi64", "bool": "vbool"}
SCALARS = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool": "bool"}

#: reduction -> (step, across the lanes, start value by kind)
REDUCTIONS: dict[str, tuple[str, str, dict[str, float | int | bool]]] = {
    "sum": ("{a} + {x}", "reduce_add", {"f": 0.0, "i": 0}),
    "prod": ("{a} * {x}", "reduce_mul", {"f": 1.0, "i": 1}),
    "top": ("top({a}, {x})", "reduce_top", {"f": float("-inf")}),
    "max": ("maximum({a}, {x})", "reduce_max", {"f": float("-inf"), "i32": -(2**31), "i64": -(2**63), "b": False}),
    "min": ("minimum({a}, {x})", "reduce_min", {"f": float("inf"), "i32": 2**31 - 1, "i64": 2**63 - 1, "b": True}),
    "any": ("logical_or({a}, {x})", "reduce_or", {"b": False}),
    "all": ("logical_and({a}, {x})", "reduce_and", {"b": True}),
}
#: how tightly the value binds that a step has behind an operator
OPERANDS = {reduction: OPS[op].cpp_spelling.operands[1] for reduction, op in (("sum", "add"), ("prod", "mul"))}


def loops_of(loops: Sequence[Var], scope: Scope, emitter: Emitter) -> tuple[Loop, ...]:
    return tuple(Loop(scope.loop(v), emitter.index(v.extent)) for v in loops)


def reduction_view(reduction: Reduction, name: str, value: str, value_tail: str) -> ReductionView:
    compute = DTYPES[reduction.value.dtype].compute
    base = {"argmax": "max", "argmin": "min"}.get(reduction.op, reduction.op)
    step, across, identities = REDUCTIONS[base]
    if compute == "bool" and base in ("max", "min"):
        step, across, _ = REDUCTIONS["any" if base == "max" else "all"]
    start = identities[compute] if compute in identities else identities[DTYPES[compute].kind]

    identity = literal(Const(start, compute)).text
    return ReductionView(name, VECTORS[compute], SCALARS[compute], identity, step, value, value_tail, across)


def printed_reduction(reduction: Reduction, name: str, main: Emitter, tail: Emitter | None = None) -> ReductionView:
    """The view of a reduction of lanes that the emitters print, main loop and tail; products are not rounded
    before they are summed."""
    if reduction.op == "sum" and (factors := main.factors(reduction.value)):
        factors_tail = tail.factors(reduction.value) if tail else None
        view = reduction_view(reduction, name, ", ".join(factors), ", ".join(factors_tail or ()))
        return replace(view, products=True)
    needed = OPERANDS.get(reduction.op, Precedence.LOWEST)
    return reduction_view(
        reduction, name, main.lanes(reduction.value, needed), tail.lanes(reduction.value, needed) if tail else ""
    )


def acc_names(node: Reduce) -> dict[str, str]:
    return {f.acc.name: f"acc{i}" for i, f in enumerate(node.reductions)}


def horizontal_reduction_view(
    node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, plan: HorizontalPlan
) -> HorizontalReduction:
    """A reduction along the lanes."""
    outer = loops_of([v for v in node.rdims if v is not vector], scope, Emitter(scope, None))
    scope.loop(vector)
    main, tail = Emitter(scope, vector), Emitter(scope, vector, tail=True)
    names = acc_names(node)
    for e in (main, tail):
        e.count_uses(f.value for f in node.reductions)
    reductions = [printed_reduction(f, names[f.acc.name], main, tail) for f in node.reductions]
    finish = Emitter(scope, None, accs=names).behind(main)
    emit_stores(finish, node)
    lanes, ends = lanes_view(vector, scope, main, tail), (*finish.pre, *finish.body)
    lanes = replace(lanes, main=(*prefetch_lines(plan.prefetch, vector, scope), *lanes.main))
    return HorizontalReduction(loops, outer, lanes, tuple(reductions), ends, plan.piece, plan.streamed, plan.stream)


def columns_view(
    node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, walk: ColumnWalk, first: str, last: str
) -> ColumnReduction | WelfordColumns:
    """A reduction of rows of memory that lie across the lanes, of its columns from `first` to `last`."""
    if node.reductions[0].op == "welford":
        return _welford_view(node, vector, loops, walk, scope)
    return _column_reduction_view(node, vector, loops, scope, walk, first, last)


def walk_view(walk: ColumnWalk, node: Reduce, vector: Var, scope: Scope) -> Walk:
    """The function of loops.h that walks over rows so, and what it fetches."""
    function = "rows_one_by_one" if walk.one_by_one else f"rows_together<{walk.rows}>"
    if walk.in_order:
        function = f"rows_in_order<{walk.columns}, {widest(f.value for f in node.reductions)}>"
    return Walk(function, walk.rows, prefetch_lines(walk.prefetch, vector, scope), walk.streams, walk.in_order)


def _welford_view(node: Reduce, vector: Var, loops: tuple[Loop, ...], walk: ColumnWalk, scope: Scope) -> WelfordColumns:
    (row,) = loops_of(node.rdims, scope, Emitter(scope, None))
    (reduction,), names = node.reductions, acc_names(node)
    scope.loop(vector)
    main = Emitter(scope, vector)
    main.count_uses([reduction.value])
    view = reduction_view(replace(reduction, op="sum"), names[reduction.acc.name], main.lanes(reduction.value), "")
    end = Emitter(scope, vector, False, names, frozenset(names))
    emit_stores(end, node)
    return WelfordColumns(
        loops,
        row,
        lanes_view(vector, scope, end, end),
        view,
        (*main.pre, *main.body),
        vector.extent.constant or 0,
        widest([reduction.value]),
        prefetch_lines(walk.prefetch, vector, scope),
    )


def _column_reduction_view(
    node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, walk: ColumnWalk, first: str, last: str
) -> ColumnReduction:
    *outer, row = loops_of(node.rdims, scope, Emitter(scope, None))
    names = acc_names(node)
    scope.loop(vector)
    main, tail = Emitter(scope, vector), Emitter(scope, vector, tail=True)
    for e in (main, tail):
        e.count_uses(f.value for f in node.reductions)
    reductions = tuple(printed_reduction(f, names[f.acc.name], main, tail) for f in node.reductions)
    end, end_tail = (Emitter(scope, vector, p, names, frozenset(names)) for p in (False, True))
    emit_stores(end, node)
    emit_stores(end_tail, node)
    return ColumnReduction(
        loops,
        tuple(outer),
        row,
        lanes_view(vector, scope, end, end_tail),
        reductions,
        (*main.pre, *main.body),
        (*tail.pre, *tail.body),
        first,
        last,
        walk.columns,
        walk.block_rows,
        walk_view(walk, node, vector, scope),
        apart=walk.apart,
    )


def arg_reduction_view(node: Reduce, loops: tuple[Loop, ...], scope: Scope) -> ArgReduction:
    emitter = Emitter(scope, None)
    outer = loops_of(node.rdims, scope, emitter)
    names = acc_names(node)
    emitter.count_uses(f.value for f in node.reductions)
    views = [(f, printed_reduction(f, names[f.acc.name], emitter)) for f in node.reductions]
    text = emitter.index(row_major(node.rdims))
    finish = Emitter(scope, None, accs=names)
    emit_stores(finish, node)
    return ArgReduction(
        loops,
        outer,
        tuple(v for f, v in views if f.op not in SCALAR_REDUCTIONS),
        tuple(v for f, v in views if f.op in SCALAR_REDUCTIONS),
        text,
        (*emitter.pre, *emitter.body),
        (*finish.pre, *finish.body),
    )


def arg_view(
    node: Reduce, vector: Var | None, loops: tuple[Loop, ...], scope: Scope, walk: ColumnWalk | None,
    span: tuple[str, str] | None = None, horizontal: HorizontalPlan | None = None,
) -> ArgRow | ArgColumns | ArgReduction:  # fmt: skip
    """argmax and argmin, with the lanes along `vector`. span: first and last column; None: all of them."""
    if vector is None:
        return arg_reduction_view(node, loops, scope)
    scope.loop(vector)
    names = acc_names(node)
    main, tail = Emitter(scope, vector), Emitter(scope, vector, tail=True)
    for e in (main, tail):
        e.count_uses(f.value for f in node.reductions)
    views = [(f.op in SCALAR_REDUCTIONS, printed_reduction(f, names[f.acc.name], main, tail)) for f in node.reductions]
    reductions, places = (tuple(v for kept, v in views if kept is which) for which in (False, True))
    if vector in node.rdims:
        finish = Emitter(scope, None, accs=names)
        emit_stores(finish, node)
        lanes = lanes_view(vector, scope, main, tail)
        best = (*reductions, *(replace(v, name=f"{v.name}_best") for v in places))
        piece = horizontal.piece if horizontal is not None else 0
        return ArgRow(
            loops, HorizontalReduction((), (), lanes, best, (), piece), lanes, places, (*finish.pre, *finish.body)
        )
    (row,) = loops_of(node.rdims, scope, Emitter(scope, None))
    reductions, places, names = _without_twins(reductions, places, names)
    end, end_tail = (Emitter(scope, vector, p, names, frozenset(names)) for p in (False, True))
    emit_stores(end, node)
    emit_stores(end_tail, node)
    lanes = lanes_view(vector, scope, end, end_tail)
    inside, inside_tail = (*main.pre, *main.body), (*tail.pre, *tail.body)
    first, last = span or ("0", Emitter(scope, None).index(vector.extent))
    texts = (reductions, places, inside, inside_tail, first, last)
    walk = walk or ColumnWalk(0, 1)  # blocks of transposed rows have no columns to walk over
    return ArgColumns(loops, row, lanes, *texts, walk.columns, walk_view(walk, node, vector, scope))


def _without_twins(
    reductions: tuple[ReductionView, ...], places: tuple[ReductionView, ...], names: dict[str, str]
) -> tuple[tuple[ReductionView, ...], tuple[ReductionView, ...], dict[str, str]]:
    """Without the reductions whose values the positions keep anyhow; names: of the accumulators."""
    twins = {f.name: p.name for f in reductions for p in places if replace(f, name=p.name) == p}
    kept = tuple(f for f in reductions if f.name not in twins)
    asked = tuple(replace(p, best=f"{p.name}_best") if p.name in twins.values() else p for p in places)
    return kept, asked, {acc: f"{twins[n]}_best" if n in twins else n for acc, n in names.items()}
