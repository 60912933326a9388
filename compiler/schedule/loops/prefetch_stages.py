"""Software prefetches of the stages of a kernel: the next rows, the parts of a concatenation, the next windows.

    for i  { for j  m = max(m, x[i*J + j]),  for j  s += exp(x[i*J + j] - m) }
        ->      for i  { for j  m = ..,  for j  { prefetch x[(i + 1)*J + j],  s += .. } }

Memory would be idle while a stage reads its row a second time, or computes for long.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Expr, Load
from ...ir.index import Atom, Index, Var, of, product
from ...ir.lanes import depends
from ...ir.nodes import Map, Nest, Reduce
from ...ir.plans.loop import Form, LoopPlan, Prefetch, ReductionKind
from ...machine.cpu import LONG_MAP_AHEAD, PIPELINED_PREFETCH, STREAM_PREFETCH
from ...machine.cpu_loops import FETCHES, WORK
from ..cost.estimates import is_long
from ..cost.estimates import work as cost
from .interleaved_streams import widest
from .prefetch import prefetches, stream_prefetches
from .store_policy import has_nontemporal_stores

#: iterations of a window that those of the row before have not read, where they lie at most so many rows apart
NEW_TAPS = 2

Fetches = tuple[Prefetch, ...]


def flat_prefetches(node: Map, lanes: Var, plan: LoopPlan) -> Fetches:
    """Memory is fetched while a large map computes for long: few of its loads are on their way at a time, and the
    hardware goes ahead of them to the end of a page alone."""
    values = [s.value for s in node.stores]
    if not any(map(is_long, values)) or not has_nontemporal_stores(node, lanes, plan):
        return ()
    return prefetches(lanes, values, (lanes,), {lanes: of(lanes) + LONG_MAP_AHEAD // widest(values)})


def nest_prefetches(node: Nest, plan: LoopPlan) -> tuple[Fetches | None, ...]:
    """What each stage of a nest fetches; None: what a stage of its form fetches by itself."""
    return tuple(_of_stage(node, plan, i) for i in range(len(node.stages)))


def _of_stage(node: Nest, plan: LoopPlan, i: int) -> Fetches | None:
    stage, lanes, kind, rows = node.stages[i], plan.vector[i], plan.reduction[i], node.dims
    if lanes is None or not rows:
        return None
    if len(node.stages) > 1 and all(isinstance(s, Map) for s in node.stages) and not node.locals:
        return _joined(stage, lanes, rows)
    if i == 0 and isinstance(stage, Reduce) and kind is ReductionKind.VERTICAL:
        return _next_windows(stage, lanes, rows)
    return _next_row(stage, lanes, kind, rows, again=i > 0)


def _next_row(
    node: Map | Reduce, lanes: Var, kind: ReductionKind | None, rows: Sequence[Var], again: bool
) -> Fetches | None:
    """What the next row reads is fetched while memory has nothing to do: a stage computes for long, or the row is read
    `again`."""
    if kind not in (None, ReductionKind.HORIZONTAL, ReductionKind.COLUMNS):
        return None
    values = _values(node)
    inner = (*node.dims[len(rows) :], *(node.rdims if isinstance(node, Reduce) else ()))
    size = product(v.extent for v in inner).constant or 0
    read_again = again and size <= FETCHES.most and kind is not ReductionKind.COLUMNS
    if size < FETCHES.least or not (read_again or sum(map(cost, values)) >= WORK.long):
        return None
    ahead = -(-STREAM_PREFETCH // (size * widest(values)))  # rows: the next one, or more short ones
    far = kind is not ReductionKind.HORIZONTAL
    return prefetches(lanes, values, rows[-1:], {rows[-1]: of(rows[-1]) + ahead}, far)


def _joined(node: Map | Reduce, lanes: Var, rows: Sequence[Var]) -> Fetches:
    """Pieces of rows that others lie between are joined: the hardware finds the first lines of each too late."""
    values = _values(node)
    if all(load.index.coefficient(rows[-1]) == lanes.extent for value in values for load in value.loads):
        return ()
    return stream_prefetches(lanes, values, rows[-1], rows)


def _next_windows(node: Reduce, lanes: Var, rows: Sequence[Var]) -> Fetches:
    """What the windows of the next row read last is fetched: the following stages leave memory nothing to do."""
    inner = product(v.extent for v in node.dims[len(rows) :]).constant or 0
    if len(node.rdims) != 1 or inner < FETCHES.least or (node.rdims[0].extent.constant or 0) < NEW_TAPS:
        return ()
    (tap,), following = node.rdims, rows[-1]
    found: dict[Prefetch, None] = {}
    for back in range(1, NEW_TAPS + 1):
        moved: dict[Atom, Index] = {following: of(following) + 1, tap: tap.extent - back}
        found |= dict.fromkeys(prefetches(lanes, _values(node), (following,), moved))
    return tuple(found)


def sample_prefetches(node: Nest, plan: LoopPlan) -> tuple[Fetches | None, ...]:
    """The map that writes a piece of a sample fetches the piece of the next one that is reduced after the one at hand;
    the reductions read what lies in the first cache then."""
    assert node.walk is not None
    last, lanes, outer = node.stages[-1], plan.vector[-1], (*node.dims, node.walk)
    walked = [() if node.walk in stage.dims else None for stage in node.stages[:-1]]
    moved: dict[Atom, Index] = {v: of(v) + 1 for v in outer}
    written = prefetches(lanes, _values(last), outer[-1:], moved) if lanes is not None else ()
    return (*walked, written)


def pipelined_prefetches(node: Nest) -> tuple[Fetches, ...]:
    """What each pipeline stage of pipelined rows fetches of later rows: what no pipeline stage before it reads."""
    lane, row = next(s for s in node.stages if isinstance(s, Reduce)).rdims[0], node.dims[-1]
    made, seen = frozenset(node.writes()), set[Load]()
    found: list[Fetches] = []
    for number in range(node.pipeline_stages[-1] + 1):
        stages = [
            s for s, pipeline_stage in zip(node.stages, node.pipeline_stages, strict=True) if pipeline_stage == number
        ]
        loads = [e for s in stages for v in s.expressions() for e in v.walk() if isinstance(e, Load)]
        new = [ld for ld in loads if ld not in seen and ld.buffer not in made]
        seen.update(new)
        streams = {ld.buffer for ld in new if depends(ld.index, row)}
        ahead, extent = PIPELINED_PREFETCH // max(len(streams), 1), lane.extent.constant or PIPELINED_PREFETCH
        found.append(prefetches(lane, new, (row,), {row: of(row) + -(-ahead // max(extent, 1))}))
    return tuple(found)


def leaving_prefetches(node: Map, plan: LoopPlan) -> Fetches:
    """What follows in memory on a block of rows whose lines leave row by row."""
    (lanes,) = plan.vector
    inner = [v for v in node.dims if v is not lanes and v not in plan.parallel]
    if lanes is None or not inner or not plan.combined or plan.row_prefetch is not None:
        return ()
    return stream_prefetches(lanes, _values(node), inner[0], plan.parallel)


def stage_prefetches(node: Map | Reduce | Nest, plan: LoopPlan) -> tuple[Fetches | None, ...]:
    """What the stages of a kernel fetch, by its form; empty where the form decides by itself."""
    if isinstance(node, Nest):
        if plan.form is Form.ROWS:
            return nest_prefetches(node, plan)
        if plan.form is Form.PIPELINED_SAMPLES:
            return sample_prefetches(node, plan)
        return pipelined_prefetches(node) if plan.form is Form.PIPELINED_ROWS else ()
    if not isinstance(node, Map) or plan.vector == (None,):
        return ()
    if plan.form is Form.FLAT and plan.vector[0] is not None:
        return (flat_prefetches(node, plan.vector[0], plan),)
    return (leaving_prefetches(node, plan),) if plan.form is Form.ROWS else ()


def _values(node: Map | Reduce) -> list[Expr]:
    return [f.value for f in node.reductions] if isinstance(node, Reduce) else [s.value for s in node.stores]
