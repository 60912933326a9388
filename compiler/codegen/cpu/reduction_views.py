"""Views of reductions: along the lanes, across many rows of memory, and those that keep a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Const, Expr, Load
from ...ir.index import (
    ONE,
    ZERO,
    Atom,
    Index,
    Var,
    minimum,
    of,
    product,
    row_major,
)
from ...ir.lanes import ALIGNMENT, depends, lane_stride
from ...ir.nodes import Fold, Reduce
from ...ir.ops import OPS, Precedence
from ...schedule.algebra.rfactor import ENOUGH_TASKS
from ...schedule.cost.estimates import number, work
from ...schedule.loops.streams import in_memory, widest
from ...schedule.loops.vector_axis import LEAST_ROWS, SCALAR_FOLDS, keeps_places
from .emit import Emitter, literal
from .prefetch import AHEAD_BYTES, fetches, stream_ahead
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

#: elements of a row that its four accumulators fold in a run; of one whose places are asked for, to be searched again.
#: All pieces are whole turns of four of the longest vectors
PIECE, PLACES_PIECE = 1024, 256
#: elements of each of four streams of memory that are folded at a time: several pages, for fetches end at a page
STREAM = 16384
#: streams of rows (as each_stream_of_rows in loops.h takes them), elements (and least bytes) of one before the next
#: one's turn
STREAMS, STREAM_PIECE, STREAM_PIECE_BYTES = 4, 128, 256
#: accumulators of a block of columns, and rows after which they are folded into the result
BLOCK_COLUMNS, BLOCK_ROWS = 1024, 64
#: bytes of a row of memory that are folded before the next one's turn, where rows are pages apart, and that they are
#: fetched ahead (and where places are kept): the more, the longer the pieces that memory is read in
WIDE_BYTES, WIDE_AHEAD, WIDE_PLACES_AHEAD = 32768, 1024, 2048
#: columns of rows so narrow that twice as many are folded into the result together
NARROW = 128
#: most columns of rows that are folded in the order of memory: their accumulators stay in the first cache
IN_ORDER = 4096
#: most rows of a block of columns that are walked together (fewer where places are kept: each waits for the one before
#: it), and the work on an element above which each has its turn
TOGETHER, PLACES_TOGETHER, LONG_WORK = 8, 4, 12
#: rows that memory is read ahead where places are kept; blocks so small that the next one is fetched instead of rows
PLACES_AHEAD, SMALL_BLOCK = 16, 40960
#: streams of rows whose places are kept, their most columns, least rows, and least bytes: fewer lie in the caches
PLACES_STREAMS, STREAM_COLUMNS, STREAM_ROWS, STREAM_BYTES = 4, 512, 64, 1 << 23
#: least elements of a piece of a row of which anything is fetched, and of one that is a stream itself
LEAST_PIECE, LONG_PIECE = 256, 1024
#: elements that memory is read ahead
LEAST_AHEAD = 2048

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


def row_fold_view(node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope) -> RowFold:
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
    extent = vector.extent.constant
    lanes = replace(lanes, full=(*_next_pieces(node, vector, scope), *lanes.full))
    piece = PIECE if extent is None or extent > PIECE else 0
    streams = (extent or 0) // (STREAMS * STREAM) * (STREAMS * STREAM)
    return RowFold(loops, outer, lanes, tuple(folds), ends, piece, streams, STREAM)


def _next_pieces(node: Reduce, vector: Var, scope: Scope) -> tuple[str, ...]:
    """Fetches what follows on rows that lie in pieces: the hardware finds the first lines of each too late. Of long
    pieces it is the piece itself mostly, of short ones the next."""
    others = [v for v in node.rdims if v is not vector]
    extent, values = vector.extent.constant or 0, [f.value for f in node.folds]
    if not others or not LEAST_PIECE <= extent <= STREAM:
        return ()
    if extent < LONG_PIECE:
        return fetches(scope, vector, values, others[-1:], {others[-1]: of(others[-1]) + 1}, far=True)
    ahead = AHEAD_BYTES // max(DTYPES[b.dtype].size for b in node.reads())
    return fetches(scope, vector, values, others[-1:], {vector: of(vector) + ahead})


def columns_view(
    node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, first: str, last: str
) -> ColumnFold | SpreadColumns:
    """A fold of rows of memory that lie across the lanes, of its columns from `first` to `last`."""
    if node.folds[0].op == "spread":
        return _spread_view(node, vector, loops, scope)
    return _column_fold_view(node, vector, loops, scope, first, last)


def _spread_view(node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope) -> SpreadColumns:
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
        stream_ahead(scope, vector, [fold.value], node.rdims[-1], node.rdims),
    )


def _column_fold_view(
    node: Reduce, vector: Var, loops: tuple[Loop, ...], scope: Scope, first: str, last: str
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
    walk, rows = _column_walk(node, vector, scope)
    columns = block_columns(node, vector)
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
        columns,
        rows,
        walk,
        apart=_wide_columns(node, vector) > 0 and not walk.in_order,
    )


def block_columns(node: Reduce, vector: Var) -> int:
    """Columns of a block of accumulators."""
    if _in_order(node, vector):
        return vector.extent.constant or 0
    return _wide_columns(node, vector) or BLOCK_COLUMNS


def _wide_columns(node: Reduce, vector: Var) -> int:
    """Columns of a block where rows of memory lie far apart; 0: they do not, or there are too few for all tasks, or
    instructions take the time."""
    values, row = [f.value for f in node.folds], node.rdims[-1]
    columns = WIDE_BYTES // widest(values)
    long = any(DTYPES[f.acc.dtype].size > DTYPES["f32"].size for f in node.folds)
    few = (row.extent.constant or LEAST_ROWS) < LEAST_ROWS
    if work(*values) > LONG_WORK or (few if keeps_places(node) else long):
        return 0
    loads = [load for v in values for load in v.loads if depends(load.index, row)]
    apart = [(load.index.coefficient(row) or ZERO).constant or 0 for load in loads]
    streams = all(in_memory(load) and lane_stride(load.index, vector) == ONE for load in loads)
    if not streams or min(apart, default=0) < columns:
        return 0
    elements = product(v.extent for v in node.dims).constant or 0
    while columns > BLOCK_COLUMNS and elements // columns < ENOUGH_TASKS:
        columns //= 2
    return columns if columns > BLOCK_COLUMNS and (vector.extent.constant or 0) >= columns else 0


def _wide_walk(node: Reduce, vector: Var, scope: Scope) -> Walk:
    """How rows are walked that lie far apart: several in turn, which the hardware fetches where all that is done with
    them is an addition."""
    row, values = node.rdims[-1], [f.value for f in node.folds]
    rows = rows_at_once(row.extent)
    walk = Walk(f"rows_together<{rows}>", rows, ())
    if all(f.op == "sum" and isinstance(f.value, Load) for f in node.folds):
        return walk
    ahead = WIDE_PLACES_AHEAD if keeps_places(node) else WIDE_AHEAD
    moved: dict[Atom, Index] = {vector: of(vector) + ahead // widest(values)}
    return replace(walk, ahead=fetches(scope, vector, values, (row,), moved))


def _in_order(node: Reduce, vector: Var) -> bool:
    """Whether rows are folded one after the other: they lie so in memory, which is read as one stream."""
    columns, row = vector.extent.constant or 0, node.rdims[-1]
    tasks = product(v.extent for v in node.dims if v is not vector).constant or 0
    most = IN_ORDER if tasks >= ENOUGH_TASKS else BLOCK_COLUMNS  # else a row's columns are tasks, too
    if columns % ALIGNMENT or not 0 < columns <= most:
        return False
    values = [f.value for f in node.folds]
    streams = [load for v in values for load in v.loads if load.index.coefficient(row) == vector.extent]
    if work(*values) > LONG_WORK or any(DTYPES[s.buffer.dtype].size == 1 for s in streams):
        return False  # instructions take the time
    return any(in_memory(s) and lane_stride(s.index, vector) == ONE for s in streams)


def _places_walk(node: Reduce, vector: Var, scope: Scope, only_places: bool) -> Walk:
    """How rows are walked whose places are kept: in the order of memory, from several places of it in turn where they
    are narrow and no whole vectors."""
    row, values = node.rdims[-1], [f.value for f in node.folds]
    if _in_order(node, vector):
        return Walk("", 1, stream_ahead(scope, vector, values, row, (row,)), in_order=True)
    if _wide_columns(node, vector):
        return _wide_walk(node, vector, scope)
    rows, columns = row.extent.constant or STREAM_ROWS, vector.extent.constant
    large = any(number(b.size) * DTYPES[b.dtype].size >= STREAM_BYTES for b in node.reads())
    if only_places and large and columns is not None and columns <= STREAM_COLUMNS and rows >= STREAM_ROWS:
        return Walk("", PLACES_STREAMS, rows_ahead(row, PLACES_STREAMS, values, vector, scope), streams=True)
    return walk_view(row, values, vector, scope, PLACES_TOGETHER, PLACES_AHEAD)


def _column_walk(node: Reduce, vector: Var, scope: Scope) -> tuple[Walk, int]:
    """How rows are folded, and how many of them at a time into the result.

    Narrow rows that are walked together lie apart: what the hardware fetches ends at a page, and streams in several
    pages go on meanwhile. Wide ones lie pages apart anyhow, and need no fetches beside those unless they come in turn.
    """
    values, row, columns = [f.value for f in node.folds], node.rdims[-1], vector.extent.constant
    if _in_order(node, vector):
        ahead = stream_ahead(scope, vector, values, row, (row,))
        size = widest(values)
        return Walk(f"rows_in_order<{columns}, {size}>", 1, ahead, in_order=True), BLOCK_ROWS
    if _wide_columns(node, vector):
        return _wide_walk(node, vector, scope), BLOCK_ROWS
    walk = walk_view(row, values, vector, scope)
    if columns is None or columns > BLOCK_COLUMNS:
        return (walk if work(*values) > LONG_WORK else replace(walk, ahead=())), BLOCK_ROWS
    block = BLOCK_ROWS if columns >= NARROW else 2 * BLOCK_ROWS
    next_block: dict[Atom, Index] = {row: of(row) + min(block, row.extent.constant or block)}
    return replace(walk, streams=True, ahead=fetches(scope, vector, values, (row,), next_block, far=True)), block


def rows_at_once(extent: Index, most: int = TOGETHER) -> int:
    """Rows that are walked without a loop; where they are few, groups of one size."""
    rows = extent.constant or 0
    if 1 < rows <= most:
        return rows
    groups = range(most, most // 2, -1) if rows <= BLOCK_ROWS else ()
    return next((n for n in groups if rows % n == 0), most)


def walk_view(
    row: Var, values: Sequence[Expr], vector: Var, scope: Scope, together: int = TOGETHER, least_ahead: int = 0
) -> Walk:
    """How `row` is walked with lanes along `vector`, some rows `together`, and what is fetched meanwhile."""
    rows = rows_at_once(row.extent, together)
    fetched = rows_ahead(row, max(rows, least_ahead), values, vector, scope)
    in_turn = work(*values) > LONG_WORK
    return Walk("rows_in_turn" if in_turn else f"rows_together<{rows}>", rows, fetched)


def rows_ahead(
    row: Var, least: int, values: Sequence[Expr], vector: Var, scope: Scope, written: bool = False
) -> tuple[str, ...]:
    """Fetches what is read at least so many rows on, with lanes along `vector`; written: as much is written as read."""
    columns = vector.extent.constant
    ahead = of(row) + max(least, LEAST_AHEAD // (columns or LEAST_AHEAD))
    moved: dict[Atom, Index] = {row: ahead}
    apart = columns is None or columns > BLOCK_COLUMNS  # other columns follow, not other rows
    if apart:
        small = 0 < (row.extent.constant or 0) * BLOCK_COLUMNS <= SMALL_BLOCK
        moved = {vector: of(vector) + BLOCK_COLUMNS} if small else {row: minimum(ahead, row.extent - 1)}
    return fetches(scope, vector, values, (row,), moved, far=not (apart and written))


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
    node: Reduce, vector: Var | None, loops: tuple[Loop, ...], scope: Scope, span: tuple[str, str] | None = None
) -> ArgRow | ArgColumns | ArgFold:
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
        piece = PLACES_PIECE if (vector.extent.constant or PIECE) > 2 * PLACES_PIECE else 0
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
    walk = _places_walk(node, vector, scope, only_places=not folds)
    block = STREAM_COLUMNS if walk.streams else block_columns(node, vector)
    return ArgColumns(loops, row, lanes, *texts, block, walk)


def _without_twins(
    folds: tuple[FoldView, ...], places: tuple[FoldView, ...], names: dict[str, str]
) -> tuple[tuple[FoldView, ...], tuple[FoldView, ...], dict[str, str]]:
    """Without the folds whose values the positions keep anyhow; names: of the accumulators."""
    twins = {f.name: p.name for f in folds for p in places if replace(f, name=p.name) == p}
    kept = tuple(f for f in folds if f.name not in twins)
    asked = tuple(replace(p, best=f"{p.name}_best") if p.name in twins.values() else p for p in places)
    return kept, asked, {acc: f"{twins[n]}_best" if n in twins else n for acc, n in names.items()}
