"""Vertical reductions: each lane has a reduction of its own. Unrolling, strips of rows, windows, prefetches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, IndexValue
from ...ir.index import ONE, ZERO, Var, of, product
from ...ir.lanes import depends
from ...ir.nodes import Map, Nest, Reduce, Reduction, Scan
from ...ir.plans.loop import LoopPlan, Prefetch, ReductionKind, VerticalPlan
from ...machine.cpu import ROWS_AHEAD
from ...machine.cpu_loops import LANE_LOOPS, ROW_LOOPS
from .bound_tightening import trim
from .interleaved_streams import in_memory, widest
from .prefetch import prefetches, stream_prefetches

#: rows of memory that lie further apart than so many of their length are no stream
APART = 2
#: elements of windows that are read as whole vectors
NEIGHBOURS = (2, 4, 8)


def vertical_plans(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> tuple[VerticalPlan | None, ...]:
    """The plan of each stage in which every lane reduces for itself; of the blocks of transposed rows too."""
    if plan.transposed is not None:
        pairs = plan.transposed.stages
        return tuple(_of_transposed(stage, lane) if isinstance(stage, Reduce) else None for stage, lane in pairs)
    stages = node.stages if isinstance(node, Nest) else (node,)
    kinds = zip(stages, plan.vector, plan.reduction, strict=True) if plan.reduction else ()
    return tuple(
        vertical_plan(stage, lanes) if isinstance(stage, Reduce) and kind is ReductionKind.VERTICAL else None
        for stage, lanes, kind in kinds
    )


def _of_transposed(node: Reduce, lane: Var) -> VerticalPlan:
    """Sums of transposed rows are taken in parts, so that they keep their digits."""
    found = vertical_plan(node, lane)
    sums = any(f.op == "sum" for f in node.reductions) and len(found.inside.rdims) == 1
    return replace(found, part=ROW_LOOPS.transposed_sum if sums else 0)


def vertical_plan(node: Reduce, lanes: Var | None) -> VerticalPlan:
    """How a reduction runs whose lanes reduce for themselves; None: one element at a time."""
    unroll = _unrolled(node.rdims)
    inside = trim(node, lanes)
    if any(isinstance(f.value, Call) and f.value.op == "where" for f in inside.reductions):
        unroll = (0,) * len(unroll)  # a choice in each iteration is long
    if lanes is None:
        return VerticalPlan(inside, unroll)
    strips = _in_order(inside, lanes)
    planes = () if strips else _plane_prefetches(inside, lanes)
    return VerticalPlan(
        inside,
        unroll,
        strips,
        None if strips else _neighbours(inside, lanes),
        () if planes else _prefetches(inside, lanes, strips),
        planes,
    )


def _neighbours(node: Reduce, lanes: Var) -> int | None:
    """The reduced loop whose windows are whole vectors of memory; None: there is none."""
    loops = range(len(node.rdims))
    return next((i for i in loops if all(_side_by_side(f, lanes, node.rdims[i]) for f in node.reductions)), None)


def _side_by_side(reduction: Reduction, vector: Var, tap: Var) -> bool:
    """Whether the reduction's windows along `tap` lie one behind the other, and each is read whole."""
    if tap.extent.constant not in NEIGHBOURS or DTYPES[reduction.value.dtype].compute != "f32":
        return False
    if any(isinstance(e, IndexValue) or (isinstance(e, Call) and e.op == "where") for e in reduction.value.walk()):
        return False
    loads = reduction.value.loads
    return bool(loads) and all(
        ld.index.coefficient(vector) == tap.extent and ld.index.coefficient(tap) == ONE for ld in loads
    )


def _prefetches(node: Reduce, vector: Var, strips: bool) -> tuple[Prefetch, ...]:
    """Fetches of what follows in memory on rows that are read in order, or on windows of a long row."""
    values = [f.value for f in node.reductions]
    if strips:
        return stream_prefetches(vector, values, node.rdims[-1], node.dims)
    if (vector.extent.constant or 0) < ROW_LOOPS.stream_of_windows or len(node.rdims) != 1:
        return ()
    return stream_prefetches(vector, values, vector, (vector,), {node.rdims[0]: ZERO})


def _plane_prefetches(node: Reduce, vector: Var) -> tuple[Prefetch, ...]:
    """Fetches of what follows on each of many long rows that are reduced together; of sums the hardware does."""
    values = [f.value for f in node.reductions]
    if (
        len(node.rdims) != 1
        or all(f.op == "sum" for f in node.reductions)
        or (vector.extent.constant or 0) < ROW_LOOPS.stream_of_windows
    ):
        return ()
    (row,) = node.rdims
    loads = [load for v in values for load in v.loads]
    steps = [load.index.coefficient(row) or ZERO for load in loads]
    apart = min((step.constant or 0 for step in steps), default=0)
    if (
        (row.extent.constant or 0) < ROW_LOOPS.planes
        or apart < ROW_LOOPS.stream_of_windows
        or not all(map(in_memory, loads))
    ):
        return ()
    return prefetches(vector, values, (row,), {vector: of(vector) + ROWS_AHEAD // widest(values)})


def _unrolled(loops: Sequence[Var]) -> tuple[int, ...]:
    """The iterations of the loops that are unrolled, the innermost first; 0 for the others."""
    iterations: list[int] = []
    total = 1
    for v in reversed(loops):
        total *= v.extent.constant or LANE_LOOPS.unrolled + 1
        iterations.insert(0, v.extent.constant or 0 if total <= LANE_LOOPS.unrolled else 0)
    return tuple(iterations)


def _in_order(node: Reduce, vector: Var) -> bool:
    """Whether the last reduced loop walks over rows of memory, one behind the other, that fill few vectors."""
    if any(b.kind == "local" for b in node.reads()):
        return False  # it lies in the first cache, in any order
    length, iterations = vector.extent.constant or 0, product(v.extent for v in node.rdims).constant
    if (
        not ROW_LOOPS.strip <= length <= ROW_LOOPS.most_strip
        or not node.rdims
        or (iterations or ROW_LOOPS.strip_iterations) < ROW_LOOPS.strip_iterations
    ):
        return False
    loads = [ld for f in node.reductions for ld in f.value.loads if depends(ld.index, vector)]
    steps = [ld.index.coefficient(node.rdims[-1]) for ld in loads]
    near = all(s is not None and length <= (s.constant or 0) <= APART * length for s in steps)
    return bool(loads) and near and all(ld.index.coefficient(vector) == ONE for ld in loads)
