"""How an outer-loop-vectorised reduction reads rows of memory: blocks of columns, rows at a time, prefetches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load
from ...ir.index import ONE, ZERO, Atom, Index, Var, minimum, of, product
from ...ir.lanes import ALIGNMENT, depends, lane_stride
from ...ir.nodes import Map, Nest, Reduce, Scan
from ...ir.plans.loop import ColumnWalk, Form, LoopPlan, Prefetch, ReductionKind
from ...machine.cpu import ARGMAX_ROWS_AHEAD, COLUMNS_AHEAD, WIDE_ARGMAX_AHEAD, WIDE_COLUMNS_AHEAD
from ...machine.cpu_loops import COLUMN_LOOPS, TASKS, WORK
from ..cost.estimates import number, work
from .interleaved_streams import in_memory, widest
from .prefetch import prefetches, stream_prefetches
from .vector_axis import keeps_indices

#: reduction that keeps a position -> that of the value
BEST = {"argmax": "max", "argmin": "min"}


def block_columns(node: Reduce, vector: Var) -> int:
    """Columns of a block of accumulators."""
    if _in_order(node, vector):
        return vector.extent.constant or 0
    return _wide_columns(node, vector) or COLUMN_LOOPS.block


def _wide_columns(node: Reduce, vector: Var) -> int:
    """Columns of a block where rows of memory lie far apart; 0: they do not, or there are too few for all tasks, or
    instructions take the time."""
    values, row = [f.value for f in node.reductions], node.rdims[-1]
    columns = COLUMN_LOOPS.wide_bytes // widest(values)
    long = any(DTYPES[f.acc.dtype].size > DTYPES["f32"].size for f in node.reductions)
    few = (row.extent.constant or COLUMN_LOOPS.in_registers) < COLUMN_LOOPS.in_registers
    if work(*values) > WORK.long or (few if keeps_indices(node) else long):
        return 0
    loads = [load for v in values for load in v.loads if depends(load.index, row)]
    apart = [(load.index.coefficient(row) or ZERO).constant or 0 for load in loads]
    streams = all(in_memory(load) and lane_stride(load.index, vector) == ONE for load in loads)
    if not streams or min(apart, default=0) < columns:
        return 0
    elements = product(v.extent for v in node.dims).constant or 0
    while columns > COLUMN_LOOPS.block and elements // columns < TASKS.reductions:
        columns //= 2
    return columns if columns > COLUMN_LOOPS.block and (vector.extent.constant or 0) >= columns else 0


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
    # of fewer rows than there are threads, the columns are tasks, too
    most = COLUMN_LOOPS.in_order if tasks >= TASKS.reductions else COLUMN_LOOPS.block
    if columns % ALIGNMENT or not 0 < columns <= most:
        return False
    values = [f.value for f in node.reductions]
    streams = [load for v in values for load in v.loads if load.index.coefficient(row) == vector.extent]
    if work(*values) > WORK.long or any(DTYPES[s.buffer.dtype].size == 1 for s in streams):
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
    rows, columns = row.extent.constant or COLUMN_LOOPS.stream_rows, vector.extent.constant
    large = any(number(b.size) * DTYPES[b.dtype].size >= COLUMN_LOOPS.stream_bytes for b in node.reads())
    narrow = columns is not None and columns <= COLUMN_LOOPS.stream_columns and rows >= COLUMN_LOOPS.stream_rows
    if large and narrow and _only_places(node):
        ahead = row_prefetches(row, COLUMN_LOOPS.argmax_streams, values, vector)
        return ColumnWalk(COLUMN_LOOPS.stream_columns, COLUMN_LOOPS.argmax_streams, streams=True, prefetch=ahead)
    return replace(_walk(row, values, vector, COLUMN_LOOPS.argmax_together, ARGMAX_ROWS_AHEAD), columns=block)


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
    if columns is None or columns > COLUMN_LOOPS.block:
        return walk if work(*values) > WORK.long else replace(walk, prefetch=())
    block = COLUMN_LOOPS.block_rows if columns >= COLUMN_LOOPS.narrow else 2 * COLUMN_LOOPS.block_rows
    next_block: dict[Atom, Index] = {row: of(row) + min(block, row.extent.constant or block)}
    ahead = prefetches(vector, values, (row,), next_block, far=True)
    return replace(walk, streams=True, prefetch=ahead, block_rows=block)


def scan_walk(node: Scan, vector: Var) -> ColumnWalk:
    """The columns of a task, and what a later step reads."""
    values = [*(c.next for c in node.carries), *(s.value for s in node.stores)]
    return ColumnWalk(COLUMN_LOOPS.scan, 1, prefetch=row_prefetches(node.step, 1, values, vector, written=True))


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
    if stage.reductions[0].op == "welford":
        ahead = stream_prefetches(lanes, [stage.reductions[0].value], stage.rdims[-1], stage.rdims)
        return ColumnWalk(block_columns(stage, lanes), 1, in_order=True, prefetch=ahead)
    walk, own = column_walk(stage, lanes), plan.prefetch[i] if plan.prefetch else None
    return walk if own is None else replace(walk, prefetch=own)


def rows_at_once(extent: Index, most: int = COLUMN_LOOPS.together) -> int:
    """Rows that are walked without a loop; where they are few, groups of one size."""
    rows = extent.constant or 0
    if 1 < rows <= most:
        return rows
    groups = range(most, most // 2, -1) if rows <= COLUMN_LOOPS.block_rows else ()
    return next((n for n in groups if rows % n == 0), most)


def _walk(
    row: Var, values: Sequence[Expr], vector: Var, together: int = COLUMN_LOOPS.together, least_prefetch: int = 0
) -> ColumnWalk:
    """How `row` is walked with lanes along `vector`, some rows `together`, and what is fetched meanwhile."""
    rows = rows_at_once(row.extent, together)
    fetched = row_prefetches(row, max(rows, least_prefetch), values, vector)
    return ColumnWalk(COLUMN_LOOPS.block, rows, one_by_one=work(*values) > WORK.long, prefetch=fetched)


def row_prefetches(
    row: Var, least: int, values: Sequence[Expr], vector: Var, written: bool = False
) -> tuple[Prefetch, ...]:
    """Fetches what is read at least so many rows on, with lanes along `vector`; written: as much is written as read."""
    columns = vector.extent.constant
    ahead = of(row) + max(least, COLUMNS_AHEAD // (columns or COLUMNS_AHEAD))
    moved: dict[Atom, Index] = {row: ahead}
    apart = columns is None or columns > COLUMN_LOOPS.block  # other columns follow, not other rows
    if apart:
        small = 0 < (row.extent.constant or 0) * COLUMN_LOOPS.block <= COLUMN_LOOPS.small_block
        moved = {vector: of(vector) + COLUMN_LOOPS.block} if small else {row: minimum(ahead, row.extent - 1)}
    return prefetches(vector, values, (row,), moved, far=not (apart and written))
