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
from ...ir.nodes import Fold, Reduce
from ...ir.ops import OPS, Precedence
from ...ir.plans.loop import ColumnWalk, HorizontalPlan
from ...schedule.loops.interleaved_streams import widest
from ...schedule.loops.vector_axis import SCALAR_FOLDS
from .emit import Emitter, literal
from .prefetch import prefetch_lines
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loops import Loop
from .views.reductions import (
    ArgColumns,
    ArgFold,
    ArgRow,
    ColumnFold,
    FoldView,
    RowFold,
    SpreadColumns,
    Walk,
)

VECTORS = {"f32": "vf32", "f64": "vf64", "i32": "vi32", "i64": "vi64", "bool": "vbool"}
SCALARS = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool": "bool"}

#: fold -> (step, across the lanes, start value by kind)
FOLDS: dict[str, tuple[str, str, dict[str, float | int | bool]]] = {
    "sum": ("{a} + {x}", "reduce_add", {"f": 0.0, "i": 0}),
    "prod": ("{a} * {x}", "reduce_mul", {"f": 1.0, "i": 1}),
    "top": ("top({a}, {x})", "reduce_top", {"f": float("-inf")}),
    "max": ("maximum({a}, {x})", "reduce_max", {"f": float("-inf"), "i32": -(2**31), "i64": -(2**63), "b": False}),
    "min": ("minimum({a}, {x})", "reduce_min", {"f": float("inf"), "i32": 2**31 - 1, "i64": 2**63 - 1, "b": True}),
    "any": ("logical_or({a}, {x})", "reduce_or", {"b": False}),
    "all": ("logical_and({a}, {x})", "reduce_and", {"b": True}),
}
#: how tightly the value binds that a step has behind an operator
OPERANDS = {fold: OPS[op].cpp_spelling.operands[1] for fold, op in (("sum", "add"), ("prod", "mul"))}


def loops_of(loops: Sequence[Var], scope: Scope, emitter: Emitter) -> tuple[Loop, ...]:
    return tuple(Loop(scope.loop(v), emitter.index(v.extent)) for v in loops)


def fold_view(fold: Fold, name: str, value: str, value_part: str) -> FoldView:
    compute = DTYPES[fold.value.dtype].compute
    base = {"argmax": "max", "argmin": "min"}.get(fold.op, fold.op)
    step, across, identities = FOLDS[base]
    if compute == "bool" and base in ("max", "min"):
        step, across, _ = FOLDS["any" if base == "max" else "all"]
    start = identities[compute] if compute in identities else identities[DTYPES[compute].kind]

    identity = literal(Const(start, compute)).text
    return FoldView(name, VECTORS[compute], SCALARS[compute], identity, step, value, value_part, across)


def folded_view(fold: Fold, name: str, full: Emitter, part: Emitter | None = None) -> FoldView:
    """The view of a fold of lanes that the emitters print, whole and partial vectors; products are not rounded before
    they are summed."""
    if fold.op == "sum" and (factors := full.factors(fold.value)):
        factors_part = part.factors(fold.value) if part else None
        view = fold_view(fold, name, ", ".join(factors), ", ".join(factors_part or ()))
        return replace(view, products=True)
    needed = OPERANDS.get(fold.op, Precedence.LOWEST)
    return fold_view(fold, name, full.lanes(fold.value, needed), part.lanes(fold.value, needed) if part else "")


def acc_names(node: Reduce) -> dict[str, str]:
    return {f.acc.name: f"acc{i}" for i, f in enumerate(node.folds)}


def row_fold_view(node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, plan: HorizontalPlan) -> RowFold:
    """A fold along the lanes."""
    outer = loops_of([v for v in node.rdims if v is not vector], scope, Emitter(scope, None))
    scope.loop(vector)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    names = acc_names(node)
    for e in (full, part):
        e.count_uses(f.value for f in node.folds)
    folds = [folded_view(f, names[f.acc.name], full, part) for f in node.folds]
    finish = Emitter(scope, None, accs=names).behind(full)
    emit_stores(finish, node)
    lanes, ends = lanes_view(vector, scope, full, part), (*finish.pre, *finish.body)
    lanes = replace(lanes, full=(*prefetch_lines(plan.prefetch, vector, scope), *lanes.full))
    return RowFold(loops, outer, lanes, tuple(folds), ends, plan.piece, plan.streamed, plan.stream)


def columns_view(
    node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, walk: ColumnWalk, first: str, last: str
) -> ColumnFold | SpreadColumns:
    """A fold of rows of memory that lie across the lanes, of its columns from `first` to `last`."""
    if node.folds[0].op == "spread":
        return _spread_view(node, vector, loops, walk, scope)
    return _column_fold_view(node, vector, loops, scope, walk, first, last)


def walk_view(walk: ColumnWalk, node: Reduce, vector: Var, scope: Scope) -> Walk:
    """The function of loops.h that walks over rows so, and what it fetches."""
    function = "rows_one_by_one" if walk.one_by_one else f"rows_together<{walk.rows}>"
    if walk.in_order:
        function = f"rows_in_order<{walk.columns}, {widest(f.value for f in node.folds)}>"
    return Walk(function, walk.rows, prefetch_lines(walk.prefetch, vector, scope), walk.streams, walk.in_order)


def _spread_view(node: Reduce, vector: Var, loops: tuple[Loop, ...], walk: ColumnWalk, scope: Scope) -> SpreadColumns:
    (row,) = loops_of(node.rdims, scope, Emitter(scope, None))
    (fold,), names = node.folds, acc_names(node)
    scope.loop(vector)
    full = Emitter(scope, vector)
    full.count_uses([fold.value])
    view = fold_view(replace(fold, op="sum"), names[fold.acc.name], full.lanes(fold.value), "")
    end = Emitter(scope, vector, False, names, frozenset(names))
    emit_stores(end, node)
    return SpreadColumns(
        loops,
        row,
        lanes_view(vector, scope, end, end),
        view,
        (*full.pre, *full.body),
        vector.extent.constant or 0,
        widest([fold.value]),
        prefetch_lines(walk.prefetch, vector, scope),
    )


def _column_fold_view(
    node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, walk: ColumnWalk, first: str, last: str
) -> ColumnFold:
    *outer, row = loops_of(node.rdims, scope, Emitter(scope, None))
    names = acc_names(node)
    scope.loop(vector)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    for e in (full, part):
        e.count_uses(f.value for f in node.folds)
    folds = tuple(folded_view(f, names[f.acc.name], full, part) for f in node.folds)
    end, end_part = (Emitter(scope, vector, p, names, frozenset(names)) for p in (False, True))
    emit_stores(end, node)
    emit_stores(end_part, node)
    return ColumnFold(
        loops,
        tuple(outer),
        row,
        lanes_view(vector, scope, end, end_part),
        folds,
        (*full.pre, *full.body),
        (*part.pre, *part.body),
        first,
        last,
        walk.columns,
        walk.block_rows,
        walk_view(walk, node, vector, scope),
        apart=walk.apart,
    )


def arg_fold_view(node: Reduce, loops: tuple[Loop, ...], scope: Scope) -> ArgFold:
    emitter = Emitter(scope, None)
    outer = loops_of(node.rdims, scope, emitter)
    names = acc_names(node)
    emitter.count_uses(f.value for f in node.folds)
    views = [(f, folded_view(f, names[f.acc.name], emitter)) for f in node.folds]
    text = emitter.index(row_major(node.rdims))
    finish = Emitter(scope, None, accs=names)
    emit_stores(finish, node)
    return ArgFold(
        loops,
        outer,
        tuple(v for f, v in views if f.op not in SCALAR_FOLDS),
        tuple(v for f, v in views if f.op in SCALAR_FOLDS),
        text,
        (*emitter.pre, *emitter.body),
        (*finish.pre, *finish.body),
    )


def arg_view(
    node: Reduce, vector: Var | None, loops: tuple[Loop, ...], scope: Scope, walk: ColumnWalk | None,
    span: tuple[str, str] | None = None, horizontal: HorizontalPlan | None = None,
) -> ArgRow | ArgColumns | ArgFold:  # fmt: skip
    """argmax and argmin, with the lanes along `vector`. span: first and last column; None: all of them."""
    if vector is None:
        return arg_fold_view(node, loops, scope)
    scope.loop(vector)
    names = acc_names(node)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    for e in (full, part):
        e.count_uses(f.value for f in node.folds)
    views = [(f.op in SCALAR_FOLDS, folded_view(f, names[f.acc.name], full, part)) for f in node.folds]
    folds, places = (tuple(v for kept, v in views if kept is which) for which in (False, True))
    if vector in node.rdims:
        finish = Emitter(scope, None, accs=names)
        emit_stores(finish, node)
        lanes = lanes_view(vector, scope, full, part)
        best = (*folds, *(replace(v, name=f"{v.name}_best") for v in places))
        piece = horizontal.piece if horizontal is not None else 0
        return ArgRow(loops, RowFold((), (), lanes, best, (), piece), lanes, places, (*finish.pre, *finish.body))
    (row,) = loops_of(node.rdims, scope, Emitter(scope, None))
    folds, places, names = _without_twins(folds, places, names)
    end, end_part = (Emitter(scope, vector, p, names, frozenset(names)) for p in (False, True))
    emit_stores(end, node)
    emit_stores(end_part, node)
    lanes = lanes_view(vector, scope, end, end_part)
    inside, inside_part = (*full.pre, *full.body), (*part.pre, *part.body)
    first, last = span or ("0", Emitter(scope, None).index(vector.extent))
    texts = (folds, places, inside, inside_part, first, last)
    walk = walk or ColumnWalk(0, 1)  # blocks of transposed rows have no columns to walk over
    return ArgColumns(loops, row, lanes, *texts, walk.columns, walk_view(walk, node, vector, scope))


def _without_twins(
    folds: tuple[FoldView, ...], places: tuple[FoldView, ...], names: dict[str, str]
) -> tuple[tuple[FoldView, ...], tuple[FoldView, ...], dict[str, str]]:
    """Without the folds whose values the positions keep anyhow; names: of the accumulators."""
    twins = {f.name: p.name for f in folds for p in places if replace(f, name=p.name) == p}
    kept = tuple(f for f in folds if f.name not in twins)
    asked = tuple(replace(p, best=f"{p.name}_best") if p.name in twins.values() else p for p in places)
    return kept, asked, {acc: f"{twins[n]}_best" if n in twins else n for acc, n in names.items()}
