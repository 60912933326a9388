"""How a reduction walks over rows of memory that lie across the lanes: blocks of columns, rows at a time, fetches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load
from ...ir.index import ONE, ZERO, Atom, Index, Var, minimum, of, product
from ...ir.lanes import ALIGNMENT, depends, lane_stride
from ...ir.nodes import Map, Nest, Reduce, Scan
from ...ir.plans.loop import ColumnWalk, Form, LoopPlan, Prefetch, ReductionKind
from ...machine.cpu import ARGMAX_ROWS_AHEAD, BEYOND_L2, COLUMNS_AHEAD, WIDE_ARGMAX_AHEAD, WIDE_COLUMNS_AHEAD
from ..algebra.rfactor import ENOUGH_TASKS
from ..cost.estimates import number, work
from .interleaved_streams import in_memory, widest
from .prefetch import prefetches, stream_prefetches
from .vector_axis import LEAST_ROWS, keeps_indices

#: accumulators of a block of columns, and rows after which they are added into the result
BLOCK_COLUMNS, BLOCK_ROWS = 1024, 64
#: bytes of a row of memory that are reduced before the next one's turn, where rows are pages apart
WIDE_BYTES = 32768
#: columns of rows so narrow that twice as many are added into the result together
NARROW = 128
#: most columns of rows that are reduced in the order of memory: their accumulators stay in the first cache
IN_ORDER = 4096
#: most rows of a block of columns that are walked together (fewer where places are kept: each waits for the one before
#: it), and the work on an element above which each has its turn
TOGETHER, INDICES_TOGETHER, LONG_WORK = 8, 4, 12
#: elements of blocks so small that the next one is fetched instead of rows
SMALL_BLOCK = 40960
#: streams of rows whose places are kept, their most columns, least rows, and least bytes: fewer lie in the caches
INDICES_STREAMS, STREAM_COLUMNS, STREAM_ROWS, STREAM_BYTES = 4, 512, 64, BEYOND_L2
#: columns of a task of a scan: what they carry stays in the first level cache
SCAN_COLUMNS = 1024
#: reduction that keeps a position -> that of the value
BEST = {"argmax": "max", "argmin": "min"}


def block_columns(node: Reduce, vector: Var) -> int:
    """Columns of a block of accumulators."""
    if _in_order(node, vector):
        return vector.extent.constant or 0
    return _wide_columns(node, vector) or BLOCK_COLUMNS


def _wide_columns(node: Reduce, vector: Var) -> int:
    """Columns of a block where rows of memory lie far apart; 0: they do not, or there are too few for all tasks, or
    instructions take the time."""
    values, row = [f.value for f in node.reductions], node.rdims[-1]
    columns = WIDE_BYTES // widest(values)
    long = any(DTYPES[f.acc.dtype].size > DTYPES["f32"].size for f in node.reductions)
    few = (row.extent.constant or LEAST_ROWS) < LEAST_ROWS
    if work(*values) > LONG_WORK or (few if keeps_indices(node) else long):
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


def _wide_walk(node: Reduce, vector: Var) -> ColumnWalk:
    """How rows are walked that lie far apart: several in turn, which the hardware fetches where all that is done with
    them is an addition."""
    row, values = node.rdims[-1], [f.value for f in node.reductions]
    walk = ColumnWalk(block_columns(node, vector), rows_at_once(row.extent))
    if all(f.op == "sum" and isinstance(f.value, Load) for f in node.reductions):
        return walk
    ahead = WIDE_ARGMAX_AHEAD if keeps_indices(node) else WIDE_COLUMNS_AHEAD
    moved: dict[Atom, Index] = {vector: of(vector) + ahead // widest(values)}
    return replace(walk, prefetch=prefetches(vector, values, (row,), moved))


def _in_order(node: Reduce, vector: Var) -> bool:
    """Whether rows are reduced one after the other: they lie so in memory, which is read as one stream."""
    columns, row = vector.extent.constant or 0, node.rdims[-1]
    tasks = product(v.extent for v in node.dims if v is not vector).constant or 0
    most = IN_ORDER if tasks >= ENOUGH_TASKS else BLOCK_COLUMNS  # else a row's columns are tasks, too
    if columns % ALIGNMENT or not 0 < columns <= most:
        return False
    values = [f.value for f in node.reductions]
    streams = [load for v in values for load in v.loads if load.index.coefficient(row) == vector.extent]
    if work(*values) > LONG_WORK or any(DTYPES[s.buffer.dtype].size == 1 for s in streams):
        return False  # instructions take the time
    return any(in_memory(s) and lane_stride(s.index, vector) == ONE for s in streams)


def places_walk(node: Reduce, vector: Var) -> ColumnWalk:
    """How rows are walked whose places are kept: in the order of memory, from several places of it in turn where they
    are narrow and no whole vectors."""
    row, values, block = node.rdims[-1], [f.value for f in node.reductions], block_columns(node, vector)
    if _in_order(node, vector):
        return ColumnWalk(block, 1, in_order=True, prefetch=stream_prefetches(vector, values, row, (row,)))
    if _wide_columns(node, vector):
        return _wide_walk(node, vector)
    rows, columns = row.extent.constant or STREAM_ROWS, vector.extent.constant
    large = any(number(b.size) * DTYPES[b.dtype].size >= STREAM_BYTES for b in node.reads())
    narrow = columns is not None and columns <= STREAM_COLUMNS and rows >= STREAM_ROWS
    if large and narrow and _only_places(node):
        ahead = row_prefetches(row, INDICES_STREAMS, values, vector)
        return ColumnWalk(STREAM_COLUMNS, INDICES_STREAMS, streams=True, prefetch=ahead)
    return replace(_walk(row, values, vector, INDICES_TOGETHER, ARGMAX_ROWS_AHEAD), columns=block)


def _only_places(node: Reduce) -> bool:
    """Whether every reduction keeps a position, or is that of a value that such a reduction keeps anyhow."""
    kept = {(BEST[f.op], f.value) for f in node.reductions if f.op in BEST}
    return all(f.op in BEST or (f.op, f.value) in kept for f in node.reductions)


def column_walk(node: Reduce, vector: Var) -> ColumnWalk:
    """How rows are reduced, and how many of them at a time into the result.

    Narrow rows that are walked together lie apart: what the hardware fetches ends at a page, and streams in several
    pages go on meanwhile. Wide ones lie pages apart anyhow, and need no fetches beside those unless they come in turn.
    """
    values, row, columns = [f.value for f in node.reductions], node.rdims[-1], vector.extent.constant
    if _in_order(node, vector):
        ahead = stream_prefetches(vector, values, row, (row,))
        return ColumnWalk(block_columns(node, vector), 1, in_order=True, prefetch=ahead)
    if _wide_columns(node, vector):
        return replace(_wide_walk(node, vector), apart=True)
    walk = replace(_walk(row, values, vector), columns=block_columns(node, vector))
    if columns is None or columns > BLOCK_COLUMNS:
        return walk if work(*values) > LONG_WORK else replace(walk, prefetch=())
    block = BLOCK_ROWS if columns >= NARROW else 2 * BLOCK_ROWS
    next_block: dict[Atom, Index] = {row: of(row) + min(block, row.extent.constant or block)}
    ahead = prefetches(vector, values, (row,), next_block, far=True)
    return replace(walk, streams=True, prefetch=ahead, block_rows=block)


def scan_walk(node: Scan, vector: Var) -> ColumnWalk:
    """The columns of a task, and what a later step reads."""
    values = [*(c.next for c in node.carries), *(s.value for s in node.stores)]
    return ColumnWalk(SCAN_COLUMNS, 1, prefetch=row_prefetches(node.step, 1, values, vector, written=True))


def column_walks(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> tuple[ColumnWalk | None, ...]:
    """The walk of each stage whose lanes lie across rows of memory."""
    if isinstance(node, Scan):
        (lanes,) = plan.vector
        return (scan_walk(node, lanes),) if plan.form is Form.SCAN_COLUMNS and lanes is not None else ()
    stages = node.stages if isinstance(node, Nest) else (node,)
    return tuple(_walk_of(stage, plan, i) for i, stage in enumerate(stages)) if plan.vector else ()


def _walk_of(stage: Map | Reduce, plan: LoopPlan, i: int) -> ColumnWalk | None:
    lanes = plan.vector[i]
    if not isinstance(stage, Reduce) or lanes is None or lanes in stage.rdims:
        return None
    if plan.reduction[i] is ReductionKind.ARGMAX:
        return places_walk(stage, lanes)
    if plan.reduction[i] is not ReductionKind.COLUMNS:
        return None
    if stage.reductions[0].op == "spread":
        ahead = stream_prefetches(lanes, [stage.reductions[0].value], stage.rdims[-1], stage.rdims)
        return ColumnWalk(block_columns(stage, lanes), 1, in_order=True, prefetch=ahead)
    walk, own = column_walk(stage, lanes), plan.prefetch[i] if plan.prefetch else None
    return walk if own is None else replace(walk, prefetch=own)


def rows_at_once(extent: Index, most: int = TOGETHER) -> int:
    """Rows that are walked without a loop; where they are few, groups of one size."""
    rows = extent.constant or 0
    if 1 < rows <= most:
        return rows
    groups = range(most, most // 2, -1) if rows <= BLOCK_ROWS else ()
    return next((n for n in groups if rows % n == 0), most)


def _walk(
    row: Var, values: Sequence[Expr], vector: Var, together: int = TOGETHER, least_prefetch: int = 0
) -> ColumnWalk:
    """How `row` is walked with lanes along `vector`, some rows `together`, and what is fetched meanwhile."""
    rows = rows_at_once(row.extent, together)
    fetched = row_prefetches(row, max(rows, least_prefetch), values, vector)
    return ColumnWalk(BLOCK_COLUMNS, rows, one_by_one=work(*values) > LONG_WORK, prefetch=fetched)


def row_prefetches(
    row: Var, least: int, values: Sequence[Expr], vector: Var, written: bool = False
) -> tuple[Prefetch, ...]:
    """Fetches what is read at least so many rows on, with lanes along `vector`; written: as much is written as read."""
    columns = vector.extent.constant
    ahead = of(row) + max(least, COLUMNS_AHEAD // (columns or COLUMNS_AHEAD))
    moved: dict[Atom, Index] = {row: ahead}
    apart = columns is None or columns > BLOCK_COLUMNS  # other columns follow, not other rows
    if apart:
        small = 0 < (row.extent.constant or 0) * BLOCK_COLUMNS <= SMALL_BLOCK
        moved = {vector: of(vector) + BLOCK_COLUMNS} if small else {row: minimum(ahead, row.extent - 1)}
    return prefetches(vector, values, (row,), moved, far=not (apart and written))
