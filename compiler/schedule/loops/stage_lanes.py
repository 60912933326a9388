"""The vector axis of every stage of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Call, Expr
from ...ir.index import ONE, Var
from ...ir.nodes import Map, Nest, Reduce, Scan
from ...ir.plans.loop import Form, ReductionKind
from ...machine.cpu_loops import WINDOWS
from .lane_bounds import MOST_APART, inside
from .vector_axis import arg_loop, keeps_indices, reduces_columns, vector_loop

#: elements of a window that are reduced one by one, the windows side by side
LEAST = 2


def vector_axes(node: Map | Reduce | Nest, form: Form) -> tuple[Var | None, ...]:
    """The loop along the lanes of each stage; () for forms whose lanes follow from the form."""
    if not isinstance(node, Nest):
        return (stage_lanes(node),)
    if form is Form.ROWS:
        return tuple(_row_lanes(stage, node.dims) for stage in node.stages)
    if form is Form.PIPELINED_SAMPLES:
        return tuple(stage_lanes(stage, rows_of(node, stage)) for stage in node.stages)
    return ()


def rows_of(node: Nest, stage: Map | Reduce) -> int:
    """How many of a stage's loops are those of the nest around it: where it walks along samples, one more."""
    return len(node.dims) + (node.walk is not None and node.walk in stage.dims)


def stage_lanes(node: Map | Reduce, rows: int = 0) -> Var | None:
    """The loop along the lanes; rows: loops of the nest around it, which have none.

    Windows that a vector is too long for lie side by side in the lanes.
    """
    found = vector_loop(node) or arg_loop(node)
    if not isinstance(node, Reduce) or found not in node.rdims or len(node.dims) <= rows:
        return found
    window, last = found.extent.constant, node.dims[-1]
    if window is None or window >= WINDOWS.one_by_one or (last.extent.constant or WINDOWS.one_by_one) < LEAST:
        return found
    near = all(_near(f.value, last) for f in node.reductions)
    return last if near and all(s.index.coefficient(last) == ONE for s in node.stores) else found


def _near(value: Expr, last: Var) -> bool:
    """Whether what is read lies near from turn to turn of a loop, but for places that are left out."""
    if isinstance(value, Call) and value.op == "where" and inside(value, last) is not None:
        return True
    steps = [ld.index.coefficient(last) for ld in value.loads]
    return all(step is not None and 0 <= (step.constant or -1 if step.terms else 0) <= MOST_APART for step in steps)


def _row_lanes(stage: Map | Reduce, rows: Sequence[Var]) -> Var | None:
    """The loop of a stage's lanes; None where it is a loop over rows, for the stage is for one row then."""
    vector = stage_lanes(stage, len(rows))
    return None if vector in rows else vector


def scan_axes(node: Scan, form: Form) -> tuple[Var | None, ...]:
    """The loop along the lanes of a scan."""
    if form is Form.SCAN_COLUMNS:
        return (node.dims[-1],)
    return (node.step if form is Form.SCAN_LANES else None,)


def reductions(node: Map | Reduce | Nest | Scan, vector: Sequence[Var | None]) -> tuple[ReductionKind | None, ...]:
    """How each stage reduces; empty for forms that say it."""
    stages = node.stages if isinstance(node, Nest) else (node,)
    if isinstance(node, Scan) or not vector:
        return ()
    return tuple(reduction(s, v) if isinstance(s, Reduce) else None for s, v in zip(stages, vector, strict=True))


def reduction(node: Reduce, lanes: Var | None) -> ReductionKind:
    """How a reduction with the lanes along a loop runs."""
    if keeps_indices(node):
        return ReductionKind.ARGMAX
    if lanes in node.rdims:
        return ReductionKind.HORIZONTAL
    return ReductionKind.COLUMNS if lanes is not None and reduces_columns(node, lanes) else ReductionKind.VERTICAL
