"""Views of folds of rows that are read as streams: four rows at a time, a piece of each in its turn.

    for i  fold x[i*C ..]      ->      for i < I/4  for piece  fold x[i*C + piece ..], x[(i + I/4)*C + piece ..], ...

What the hardware fetches ahead ends at a page, and until it has found the next one its stream waits. Four rows that lie
pages apart are four streams. The folds of a row are the same, whichever rows go with it. Short rows are read one after
the other, and what follows is fetched.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.index import Atom, Index, Var, of, product
from ...ir.nodes import Map, Reduce
from ...schedule.loops.store_policy import LINE
from .prefetch import fetches, stream_ahead
from .reduction_views import STREAM, STREAM_PIECE, STREAM_PIECE_BYTES, STREAMS
from .scope import Scope
from .views.loop_kernels import LoopKernel, RowStreamKernel
from .views.reductions import ArgRow, RowFold

LEAST_ROW = 16  # elements
STREAM_AHEAD = 2048  # bytes


def row_stream_view(
    kernel: LoopKernel, node: Map | Reduce, vector: Var | None, scope: Scope
) -> LoopKernel | RowStreamKernel:
    """The kernel with its rows as streams, where it does nothing but fold each of many."""
    (stage,) = kernel.stages
    if not isinstance(node, Reduce) or not isinstance(stage, RowFold | ArgRow) or vector is None or kernel.locals:
        return kernel
    if not node.reads():  # a sum of constants
        return kernel
    best, positions = (stage.best, stage.positions) if isinstance(stage, ArgRow) else (stage, ())
    length = vector.extent.constant or LEAST_ROW
    if stage.loops or best.outer or not LEAST_ROW <= length < STREAMS * STREAM or _few(node):
        return kernel
    texts = (kernel.params, kernel.rows, kernel.count, kernel.work)
    in_order = () if positions else _one_stream(node, vector, scope)
    fetched = in_order or _fetched(node, vector, bool(positions), scope)
    best = replace(best, lanes=replace(best.lanes, full=(*fetched, *best.lanes.full)), piece=_piece(node))
    walk = "each_row_in_order" if in_order else "each_stream_of_rows"
    return RowStreamKernel("row_streams.cpp.j2", *texts, best, positions, stage.finish, walk)


def _one_stream(node: Reduce, vector: Var, scope: Scope) -> tuple[str, ...]:
    """What follows on short rows that lie one behind the other: pieces of four streams would be as short."""
    size = max(DTYPES[b.dtype].size for b in node.reads())
    if not node.dims or not 0 < (vector.extent.constant or 0) * size < STREAM_AHEAD:
        return ()
    return stream_ahead(scope, vector, [f.value for f in node.folds], node.dims[-1], node.dims)


def _fetched(node: Reduce, vector: Var, places: bool, scope: Scope) -> tuple[str, ...]:
    """What follows on a row, where its vectors lie across lines: such a line is asked for twice while it is on its way.
    Places take long enough for the hardware to fall behind."""
    size = max(DTYPES[b.dtype].size for b in node.reads())
    length = (vector.extent.constant or 0) * size
    if length < STREAM_AHEAD or (not places and length % LINE == 0):
        return ()
    ahead: dict[Atom, Index] = {vector: of(vector) + STREAM_AHEAD // size}
    return fetches(scope, vector, [f.value for f in node.folds], node.dims, ahead)


def _piece(node: Map | Reduce) -> int:
    """Elements that a stream gives before the next one's turn."""
    return max(STREAM_PIECE, STREAM_PIECE_BYTES // max(DTYPES[b.dtype].size for b in node.reads()))


def _few(node: Map | Reduce) -> bool:
    """Rows that are too few to go together."""
    count = product(v.extent for v in node.dims).constant
    return count is not None and count < STREAMS
