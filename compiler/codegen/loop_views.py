"""Views of loop kernels: maps, reductions and nests."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.dtypes import DTYPES
from ..ir.expr import Const
from ..ir.index import ONE, Var, as_index, of, product
from ..ir.nodes import Buffer, Fold, Map, Nest, Reduce
from ..schedule.loops import SCALAR_FOLDS, vector_loop
from .collapse import collapse
from .emit import Emitter, literal
from .scope import Scope
from .statements import emit_stores, lanes_view
from .tile_views import cross_loop, tile_view
from .views import (
    ArgFold,
    ColumnFold,
    FlatKernel,
    FoldView,
    KernelView,
    LaneFold,
    Lanes,
    LocalView,
    Loop,
    LoopKernel,
    MapStage,
    RowFold,
    Stage,
)

#: elements of a row that its four accumulators fold in a run
PIECE = 4096
#: a reduction of fewer rows than this keeps its accumulators in registers
LEAST_ROWS = 16
#: accumulators of a block of columns, and rows after which they are folded into the result
BLOCK_COLUMNS, BLOCK_ROWS = 1024, 256

VECTORS = {"f32": "vf32", "f64": "vf64", "i32": "vi32", "i64": "vi64", "bool": "vbool"}
SCALARS = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool": "bool"}

#: fold -> (step, across the lanes, start value by kind)
FOLDS: dict[str, tuple[str, str, dict[str, float | int | bool]]] = {
    "sum": ("{a} + {x}", "reduce_add", {"f": 0.0, "i": 0}),
    "prod": ("{a} * {x}", "reduce_mul", {"f": 1.0, "i": 1}),
    "max": ("maximum({a}, {x})", "reduce_max", {"f": float("-inf"), "i32": -(2**31), "i64": -(2**63), "b": False}),
    "min": ("minimum({a}, {x})", "reduce_min", {"f": float("inf"), "i32": 2**31 - 1, "i64": 2**63 - 1, "b": True}),
    "any": ("logical_or({a}, {x})", "reduce_or", {"b": False}),
    "all": ("logical_and({a}, {x})", "reduce_and", {"b": True}),
}


def loop_view(node: Map | Reduce | Nest, comment: tuple[str, ...]) -> KernelView:
    """The view of a kernel made of loops."""
    scope = Scope(frozenset(node.writes()), node.origin.describe(), may_stream=True)
    if isinstance(node, Nest):
        return _nest(node, scope, comment)
    node = collapse(node)
    vector = vector_loop(node)
    if isinstance(node, Map) and vector is not None and node.dims == (vector,):
        lanes = _map_lanes(node, vector, scope)
        return FlatKernel("map_flat.cpp.j2", comment, scope.params(), lanes, scope.streams())
    if isinstance(node, Map) and vector is not None and (cross := cross_loop(node, vector)) is not None:
        return tile_view(node, vector, cross, comment)
    kept = [v for v in node.dims if v is not vector]
    if isinstance(node, Reduce) and vector is not None and _folds_columns(node, vector):
        return _columns(node, vector, kept, scope, comment)
    parallel, inner = _split_rows(kept, vector in node.dims)
    rows = _loops(parallel, scope, Emitter(scope, None))
    stage = _stage(node, vector, inner, scope)
    emitter = Emitter(scope, None)
    work = product([v.extent for v in inner] + ([vector.extent] if vector in node.dims and vector else []))
    if isinstance(node, Reduce):
        work = work * product(v.extent for v in node.rdims)
    return LoopKernel(
        "rows.cpp.j2",
        comment,
        scope.params(),
        rows,
        emitter.index(product(v.extent for v in parallel)),
        emitter.index(work),
        (stage,),
        (),
        scope.streams(),
    )


def _folds_columns(node: Reduce, vector: Var | None) -> bool:
    """Many rows of memory that lie across the lanes."""
    rows = product(v.extent for v in node.rdims).constant
    plain = not any(f.op in SCALAR_FOLDS for f in node.folds)
    return plain and vector in node.dims and bool(node.rdims) and (rows is None or rows >= LEAST_ROWS)


def _columns(node: Reduce, vector: Var, kept: Sequence[Var], scope: Scope, comment: tuple[str, ...]) -> LoopKernel:
    """A kernel over blocks of columns."""
    blocks = (vector.extent + (BLOCK_COLUMNS - 1)) // as_index(BLOCK_COLUMNS)
    emitter = Emitter(scope, None)
    rows = (*_loops(kept, scope, emitter), Loop("block", emitter.index(blocks)))
    extent, start = emitter.index(vector.extent), f"block * {BLOCK_COLUMNS}"
    stage = _column_fold(node, vector, (), scope, start, f"smaller({start} + {BLOCK_COLUMNS}, {extent})")
    width = vector.extent if vector.extent.constant else as_index(BLOCK_COLUMNS)
    width = as_index(min(width.constant or BLOCK_COLUMNS, BLOCK_COLUMNS))
    work = width * product(v.extent for v in node.rdims)
    count = emitter.index(product(v.extent for v in kept) * blocks)
    texts = (rows, count, emitter.index(work), (stage,), (), scope.streams())
    return LoopKernel("rows.cpp.j2", comment, scope.params(), *texts)


def _split_rows(kept: Sequence[Var], vectorised: bool) -> tuple[list[Var], list[Var]]:
    """The loops that run in parallel, and those that stay inside: the last one, when there are many."""
    if len(kept) >= 3 and vectorised:
        return list(kept[:-1]), [kept[-1]]
    return list(kept), []


def _loops(loops: Sequence[Var], scope: Scope, emitter: Emitter) -> tuple[Loop, ...]:
    return tuple(Loop(scope.loop(v), emitter.index(v.extent)) for v in loops)


# stages --------------------------------------------------------------------------------------------------------------
def _stage(node: Map | Reduce, vector: Var | None, inner: Sequence[Var], scope: Scope) -> Stage:
    loops = _loops(inner, scope, Emitter(scope, None))
    if isinstance(node, Map):
        return map_stage(node, vector, scope, loops)
    if any(f.op in SCALAR_FOLDS for f in node.folds):
        return _arg_fold(node, loops, scope)
    if vector in node.rdims:
        return _row_fold(node, vector, loops, scope)
    if vector is not None and _folds_columns(node, vector):
        return _column_fold(node, vector, loops, scope, "0", Emitter(scope, None).index(vector.extent))
    return _lane_fold(node, vector, loops, scope)


def map_stage(node: Map, vector: Var | None, scope: Scope, loops: tuple[Loop, ...] = ()) -> MapStage:
    """The innermost part of a map: lanes along `vector`, or single elements."""
    if vector is not None:
        return MapStage(loops, _map_lanes(node, vector, scope))
    emitter = Emitter(scope, None)
    emit_stores(emitter, node)
    return MapStage(loops, None, (*emitter.pre, *emitter.body))


def _map_lanes(node: Map, vector: Var, scope: Scope) -> Lanes:
    scope.loop(vector)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    emit_stores(full, node)
    emit_stores(part, node)
    return lanes_view(vector, scope, full, part)


def _fold_view(fold: Fold, name: str, value: str, value_part: str) -> FoldView:
    compute = DTYPES[fold.value.dtype].compute
    base = {"argmax": "max", "argmin": "min"}.get(fold.op, fold.op)
    step, across, identities = FOLDS[base]
    if compute == "bool" and base in ("max", "min"):
        step, across, _ = FOLDS["any" if base == "max" else "all"]
    start = identities[compute] if compute in identities else identities[DTYPES[compute].kind]

    identity = literal(Const(start, compute)).text
    return FoldView(name, VECTORS[compute], SCALARS[compute], identity, step, value, value_part, across)


def _acc_names(node: Reduce) -> dict[str, str]:
    return {f.acc.name: f"acc{i}" for i, f in enumerate(node.folds)}


def _row_fold(node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope) -> RowFold:
    outer = _loops([v for v in node.rdims if v is not vector], scope, Emitter(scope, None))
    scope.loop(vector)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    names = _acc_names(node)
    folds = []
    for e in (full, part):
        e.count_uses(f.value for f in node.folds)
    for fold in node.folds:
        value, tail = full.lanes(fold.value), part.lanes(fold.value)
        folds.append(_fold_view(fold, names[fold.acc.name], value, tail))
    finish = Emitter(scope, None, accs=names).behind(full)
    emit_stores(finish, node)
    lanes = lanes_view(vector, scope, full, part)
    extent = vector.extent.constant
    piece = PIECE if extent is None or extent > PIECE else 0
    return RowFold(loops, outer, lanes, tuple(folds), (*finish.pre, *finish.body), piece)


def _lane_fold(node: Reduce, vector: Var | None, loops: tuple[Loop, ...], scope: Scope) -> LaneFold:
    outer = _loops(node.rdims, scope, Emitter(scope, None))
    names = _acc_names(node)
    if vector is not None:
        scope.loop(vector)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    for e in (full, part):
        e.count_uses(f.value for f in node.folds)
    folds = []
    for fold in node.folds:
        value, tail = full.lanes(fold.value), part.lanes(fold.value)
        folds.append(_fold_view(fold, names[fold.acc.name], value, tail))
    moving = frozenset(f.acc.name for f in node.folds) if vector is not None else frozenset()
    end, end_part = (Emitter(scope, vector, p, names, moving) for p in (False, True))
    emit_stores(end, node)
    emit_stores(end_part, node)
    lanes = lanes_view(vector, scope, end, end_part) if vector is not None else None
    return LaneFold(
        loops,
        outer,
        lanes,
        tuple(folds),
        tuple(full.pre),
        tuple(full.body),
        tuple(part.body),
        (*end.pre, *end.body) if vector is None else (),
    )


def _column_fold(node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, first: str, last: str) -> ColumnFold:
    *outer, row = _loops(node.rdims, scope, Emitter(scope, None))
    names = _acc_names(node)
    scope.loop(vector)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    for e in (full, part):
        e.count_uses(f.value for f in node.folds)
    values = [(f, full.lanes(f.value), part.lanes(f.value)) for f in node.folds]
    folds = tuple(_fold_view(f, names[f.acc.name], value, tail) for f, value, tail in values)
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
        BLOCK_COLUMNS,
        BLOCK_ROWS,
    )


def _arg_fold(node: Reduce, loops: tuple[Loop, ...], scope: Scope) -> ArgFold:
    emitter = Emitter(scope, None)
    outer = _loops(node.rdims, scope, emitter)
    names = _acc_names(node)
    emitter.count_uses(f.value for f in node.folds)
    views = [(f, _fold_view(f, names[f.acc.name], emitter.value(f.value), "")) for f in node.folds]
    place = as_index(0)
    for v in node.rdims:
        place = place * v.extent + of(v)
    text = emitter.index(place)
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


# nests ---------------------------------------------------------------------------------------------------------------
def _nest(node: Nest, scope: Scope, comment: tuple[str, ...]) -> LoopKernel:
    rows = _loops(node.dims, scope, Emitter(scope, None))
    locals_ = tuple(_local(b, i, scope) for i, b in enumerate(node.locals))
    stages = []
    work = as_index(0)
    for stage in node.stages:
        collapsed = collapse(stage, keep=len(node.dims))
        vector = vector_loop(collapsed)
        if isinstance(collapsed, Map) and vector in node.dims:
            vector = None
        inner = [v for v in collapsed.dims[len(node.dims) :] if v is not vector]
        stages.append(_stage(collapsed, vector, inner, scope))
        extents = [v.extent for v in collapsed.dims[len(node.dims) :]]
        extents += [v.extent for v in collapsed.rdims] if isinstance(collapsed, Reduce) else []
        work = work + product(extents)
    emitter = Emitter(scope, None)
    count = emitter.index(product(v.extent for v in node.dims))
    return LoopKernel(
        "rows.cpp.j2",
        comment,
        scope.params(),
        rows,
        count,
        emitter.index(work),
        tuple(stages),
        locals_,
        scope.streams(),
    )


def _local(buffer: Buffer, i: int, scope: Scope) -> LocalView:
    name = f"local{i}"
    scope.locals[buffer] = name
    size = buffer.size
    if size == ONE:
        return LocalView(name, SCALARS[DTYPES[buffer.dtype].compute], "")
    return LocalView(name, DTYPES[buffer.dtype].cpp, Emitter(scope, None).index(size))
