"""Horizontal reductions: the part that four accumulators sum, streams of memory, rows that are reduced together.

    for i  reduce x[i*C ..]     ->     for i < I/4  for piece  reduce x[i*C + piece ..], x[(i + I/4)*C + piece ..], ...

The hardware prefetcher stops at the end of a page, and its stream stalls until it has found the next one. Four rows
that are pages apart are four streams. The result of a row does not depend on the rows beside it. Short rows are read
one after the other, with a software prefetch of the next ones.
"""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.index import Atom, Index, Var, of, product
from ...ir.nodes import Map, Nest, Reduce, Scan
from ...ir.plans.loop import Form, HorizontalPlan, LoopPlan, Prefetch, ReductionKind, RowStreams
from ...machine.cpu import LINE, REDUCTION_AHEAD, STREAM_PREFETCH
from ...machine.cpu_loops import ROW_LOOPS
from .prefetch import prefetches, stream_prefetches


def row_piece(lanes: Var) -> int:
    """Elements that are reduced in a run; 0: the whole row."""
    extent = lanes.extent.constant
    return ROW_LOOPS.piece if extent is None or extent > ROW_LOOPS.piece else 0


def horizontal_plans(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> tuple[HorizontalPlan | None, ...]:
    """The plan of each stage that reduces along its lanes."""
    stages = node.stages if isinstance(node, Nest) else (node,)
    kinds = zip(stages, plan.vector, plan.reduction, strict=True) if plan.reduction else ()
    rows = plan.form is Form.ROWS and isinstance(node, Reduce)
    return tuple(
        _plan(stage, lanes, kind, plan, rows)
        if isinstance(stage, Reduce) and lanes is not None and lanes in stage.rdims
        else None
        for stage, lanes, kind in kinds
    )


def _plan(node: Reduce, lanes: Var, kind: ReductionKind | None, plan: LoopPlan, rows: bool) -> HorizontalPlan:
    streams = _row_streams(node, lanes, kind, plan) if rows else None
    if kind is ReductionKind.ARGMAX:
        piece = ROW_LOOPS.argmax_piece if (lanes.extent.constant or ROW_LOOPS.piece) > 2 * ROW_LOOPS.argmax_piece else 0
        return HorizontalPlan(piece, row_streams=streams)
    together = ROW_LOOPS.streams * ROW_LOOPS.stream
    streamed = (lanes.extent.constant or 0) // together * together
    return HorizontalPlan(row_piece(lanes), streamed, ROW_LOOPS.stream, _next_pieces(node, lanes), streams)


def _next_pieces(node: Reduce, lanes: Var) -> tuple[Prefetch, ...]:
    """Fetches what follows on rows that lie in pieces: the hardware finds the first lines of each too late. Of long
    pieces it is the piece itself mostly, of short ones the next."""
    others = [v for v in node.rdims if v is not lanes]
    extent, values = lanes.extent.constant or 0, [f.value for f in node.reductions]
    if not others or not ROW_LOOPS.prefetched_piece <= extent <= ROW_LOOPS.stream:
        return ()
    if extent < ROW_LOOPS.long_piece:
        return prefetches(lanes, values, others[-1:], {others[-1]: of(others[-1]) + 1}, far=True)
    return prefetches(lanes, values, others[-1:], {lanes: of(lanes) + STREAM_PREFETCH // _size(node)})


def _row_streams(node: Reduce, lanes: Var, kind: ReductionKind | None, plan: LoopPlan) -> RowStreams | None:
    """The rows as streams, where the kernel does nothing but reduce each of many."""
    inner = [v for v in node.dims if v not in plan.parallel]
    length = lanes.extent.constant or ROW_LOOPS.stream_row
    if (
        inner
        or len(node.rdims) > 1
        or not node.reads()
        or not ROW_LOOPS.stream_row <= length < ROW_LOOPS.streams * ROW_LOOPS.stream
        or _few(node)
    ):
        return None
    places, piece = (
        kind is ReductionKind.ARGMAX,
        max(ROW_LOOPS.stream_piece, ROW_LOOPS.stream_piece_bytes // _size(node)),
    )
    in_order = () if places else _one_stream(node, lanes)
    return RowStreams(bool(in_order), piece, in_order or _fetched(node, lanes, places))


def _one_stream(node: Reduce, lanes: Var) -> tuple[Prefetch, ...]:
    """What follows on short rows that lie one behind the other: pieces of four streams would be as short."""
    if not node.dims or not 0 < (lanes.extent.constant or 0) * _size(node) < REDUCTION_AHEAD:
        return ()
    return stream_prefetches(lanes, [f.value for f in node.reductions], node.dims[-1], node.dims)


def _fetched(node: Reduce, lanes: Var, places: bool) -> tuple[Prefetch, ...]:
    """What follows on a row, where its vectors lie across lines: such a line is asked for twice while it is on its way.
    Places take long enough for the hardware to fall behind."""
    length = (lanes.extent.constant or 0) * _size(node)
    if length < REDUCTION_AHEAD or (not places and length % LINE == 0):
        return ()
    ahead: dict[Atom, Index] = {lanes: of(lanes) + REDUCTION_AHEAD // _size(node)}
    return prefetches(lanes, [f.value for f in node.reductions], node.dims, ahead)


def _size(node: Reduce) -> int:
    """Bytes of the widest elements that are read."""
    return max(DTYPES[b.dtype].size for b in node.reads())


def _few(node: Reduce) -> bool:
    """Rows that are too few to go together."""
    count = product(v.extent for v in node.dims).constant
    return count is not None and count < ROW_LOOPS.streams
