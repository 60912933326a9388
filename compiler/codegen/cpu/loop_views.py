"""Views of loop kernels: maps, reductions and nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import (
    ONE,
    Atom,
    Index,
    Var,
    as_index,
    of,
    product,
)
from ...ir.nodes import Map, Nest, Reduce
from ...ir.plans.loop import Form, LoopPlan
from ...schedule.cost.estimates import is_long
from ...schedule.loops.streams import widest
from ...schedule.loops.vector_axis import folds_columns, keeps_places
from ...schedule.loops.write_combining import Stage as Written
from .emit import Emitter
from .nontemporal import is_led
from .pipeline_views import phase_view
from .prefetch import fetches, stream_ahead
from .prefetch_nests import with_looked_up, with_stage_fetches
from .prefetch_rows import (
    ahead_view,
    with_fetches,
)
from .reduction_views import (
    SCALARS,
    arg_view,
    block_columns,
    columns_view,
    loops_of,
    row_fold_view,
)
from .row_pipeline_views import row_phase_view
from .row_stream_views import row_stream_view
from .sample_pipeline_views import sample_view
from .scope import Scope
from .statements import emit_stores, lanes_view, only_moves
from .tile_views import tile_view
from .transposed_views import turned_view
from .vertical_reduction_views import lane_fold_view
from .views.kernel import KernelView
from .views.loop_kernels import FlatKernel, LoopKernel, Stage
from .views.loops import GatheredRow, Lanes, LocalView, Loop, MapStage
from .window_views import window_view
from .write_combining import gather, memory_of

FETCHED_AHEAD = 4096  # bytes
NARROW = 2  # bytes of elements of which a vector of lanes fills no register


def loop_view(node: Map | Reduce | Nest, plan: LoopPlan) -> KernelView:
    """The view of a kernel made of loops."""
    scope = Scope(
        frozenset(node.writes()), node.origin.describe(), nontemporal=plan.nontemporal, whole_lines=plan.aligned_lines
    )
    if plan.transposed is not None:
        return turned_view(plan.transposed, scope)
    if isinstance(node, Nest):
        return _nest_view(node, plan, scope)
    if plan.windows is not None:
        return window_view(node, plan.windows, scope)  # type: ignore[arg-type]
    (vector,) = plan.vector
    match plan.form, node:
        case Form.FLAT, Map() if vector is not None:
            lanes = _fetching_ahead(_map_lanes(node, vector, scope), node, vector, scope)
            return FlatKernel("map_flat.cpp.j2", scope.params(), lanes, scope.streams())
        case Form.TILES, Map() if vector is not None and plan.cross is not None:
            return tile_view(node, vector, plan.cross, scope)
        case Form.COLUMNS, Reduce() if vector is not None:
            return _columns(node, vector, plan.parallel, scope)
    return _rows(node, vector, plan, scope)


def _rows(node: Map | Reduce, vector: Var | None, plan: LoopPlan, scope: Scope) -> KernelView:
    """A kernel of one stage for each turn of the parallel loops."""
    parallel, written = plan.parallel, Written(node, vector)
    inner = [v for v in node.dims if v is not vector and v not in parallel]
    gathered = gather(plan.combined, [written], parallel, scope)
    rows = loops_of(parallel, scope, Emitter(scope, None))
    scope.tables = {} if rows else None
    stage = _stage(node, vector, inner, scope)
    emitter = Emitter(scope, None)
    count = emitter.index(product(v.extent for v in parallel))
    ahead = None if plan.row_prefetch is None else ahead_view(plan.row_prefetch, parallel, scope)
    if isinstance(node, Map) and isinstance(stage, MapStage) and vector is not None:
        if plan.row_prefetch is not None and ahead is not None:
            stage = with_fetches(stage, ahead, plan.row_prefetch, vector)
        elif gathered and inner:
            stage = _leaving(stage, gathered, node, vector, inner[0], parallel, scope)
    work = product([v.extent for v in inner] + ([vector.extent] if vector in node.dims and vector else []))
    if isinstance(node, Reduce):
        work = work * product(v.extent for v in node.rdims)
    kernel = LoopKernel(
        "rows.cpp.j2",
        scope.params(),
        rows,
        count,
        emitter.index(work),
        (stage,),
        (*_tables(scope), *memory_of(gathered)),
        scope.streams(),
        ahead=ahead,
        setup=_setup(scope),
        gathered=gathered,
    )
    return row_stream_view(kernel, node, vector, scope)


def _columns(node: Reduce, vector: Var, kept: Sequence[Var], scope: Scope) -> LoopKernel:
    """A kernel over blocks of columns."""
    columns = block_columns(node, vector)
    blocks = (vector.extent + (columns - 1)) // as_index(columns)
    emitter = Emitter(scope, None)
    rows = loops_of(kept, scope, emitter)
    extent, start = emitter.index(vector.extent), f"block * {columns}"
    span = ("0", extent)
    if blocks != ONE:
        rows, span = (*rows, Loop("block", emitter.index(blocks))), (start, f"smaller({start} + {columns}, {extent})")
    places = keeps_places(node)
    stage = arg_view(node, vector, (), scope, span) if places else columns_view(node, vector, (), scope, *span)
    width = as_index(min(vector.extent.constant or columns, columns))
    work = width * product(v.extent for v in node.rdims)
    count = emitter.index(product(v.extent for v in kept) * blocks)
    texts = (rows, count, emitter.index(work), (stage,), (), scope.streams())
    return LoopKernel("rows.cpp.j2", scope.params(), *texts)


def _leaving(
    stage: MapStage, gathered: Sequence[GatheredRow], node: Map, vector: Var, row: Var, outer: Sequence[Var],
    scope: Scope,
) -> MapStage:  # fmt: skip
    """A block of rows whose lines leave row by row, while what follows in memory is fetched."""
    assert stage.lanes is not None
    fetched = () if stage.lanes.moved else stream_ahead(scope, vector, [s.value for s in node.stores], row, outer)
    length = stage.lanes.extent if stage.lanes.extent.isdigit() else f"({stage.lanes.extent})"
    have = tuple(f"{g.lines}.have(({stage.loops[-1].name} + 1) * {length});" for g in gathered)
    return replace(stage, lanes=replace(stage.lanes, full=(*fetched, *stage.lanes.full)), after=have)


# stages --------------------------------------------------------------------------------------------------------------
def _stage(node: Map | Reduce, vector: Var | None, inner: Sequence[Var], scope: Scope) -> Stage:
    loops = loops_of(inner, scope, Emitter(scope, None))
    if isinstance(node, Map):
        return map_stage(node, vector, scope, loops)
    if keeps_places(node):
        return arg_view(node, vector, loops, scope)
    if vector in node.rdims:
        return row_fold_view(node, vector, loops, scope)
    if vector is not None and folds_columns(node, vector):
        return columns_view(node, vector, loops, scope, "0", Emitter(scope, None).index(vector.extent))
    return lane_fold_view(node, vector, loops, scope)


def map_stage(node: Map, vector: Var | None, scope: Scope, loops: tuple[Loop, ...] = ()) -> MapStage:
    """The innermost part of a map: lanes along `vector`, or single elements."""
    if vector is not None:
        return MapStage(loops, _map_lanes(node, vector, scope))
    emitter = Emitter(scope, None)
    emit_stores(emitter, node)
    return MapStage(loops, None, (*emitter.pre, *emitter.body))


def _map_lanes(node: Map, vector: Var, scope: Scope) -> Lanes:
    scope.loop(vector)
    bits = only_moves(node) and not any(b in scope.locals for b in (*node.reads(), *node.writes()))
    full, part = (Emitter(scope, vector, part=p, moves_bits=bits) for p in (False, True))
    narrow = bits and all(DTYPES[s.buffer.dtype].size <= NARROW for s in node.stores)
    led = node.stores[0] if not narrow and is_led(node, vector, scope) else None
    if led is not None:
        scope.led.add(led)
    emit_stores(full, node)
    emit_stores(part, node)
    moved, lead = full.moved_row(node.stores, NARROW) if bits else "", full.target(led) if led is not None else ""
    return lanes_view(vector, scope, full, part, moved=moved, lead=lead)


def _fetching_ahead(lanes: Lanes, node: Map, vector: Var, scope: Scope) -> Lanes:
    """Memory is fetched while a large map computes for long: few of its loads are on their way at a time, and the
    hardware goes ahead of them to the end of a page alone."""
    values = [s.value for s in node.stores]
    if lanes.moved or not scope.streams() or not any(map(is_long, values)):
        return lanes
    later: dict[Atom, Index] = {vector: of(vector) + FETCHED_AHEAD // widest(values)}
    return replace(lanes, full=(*fetches(scope, vector, values, (vector,), later), *lanes.full))


# nests ---------------------------------------------------------------------------------------------------------------
def _nest_view(node: Nest, plan: LoopPlan, scope: Scope) -> KernelView:
    locals_ = tuple(_local(b, i, scope) for i, b in enumerate(node.locals))
    match plan.form:
        case Form.PIPELINED_SAMPLES:
            return sample_view(node, plan, locals_, scope, _stage)
        case Form.PIPELINED_ROWS:
            return row_phase_view(node, plan, locals_, scope)
        case Form.PIPELINED_COLUMNS:
            return phase_view(node, locals_, scope)
    return _nest(node, plan, locals_, scope)


def _nest(node: Nest, plan: LoopPlan, locals_: tuple[LocalView, ...], scope: Scope) -> LoopKernel:
    rows = loops_of(node.dims, scope, Emitter(scope, None))
    scope.tables = {} if rows else None
    stages: list[Stage] = []
    work = as_index(0)
    written = [Written(*pair) for pair in zip(node.stages, plan.vector, strict=True)]
    gathered = gather(plan.combined, written, node.dims, scope)
    for i, (stage, vector) in enumerate(zip(node.stages, plan.vector, strict=True)):
        inner = [v for v in stage.dims[len(node.dims) :] if v is not vector]
        stages.append(with_stage_fetches(_stage(stage, vector, inner, scope), written, i, node.dims, scope))
        extents = [v.extent for v in stage.dims[len(node.dims) :]]
        extents += [v.extent for v in stage.rdims] if isinstance(stage, Reduce) else []
        work = work + product(extents)
    ahead = None if plan.row_prefetch is None else ahead_view(plan.row_prefetch, node.dims, scope)
    if plan.row_prefetch is not None and ahead is not None:
        stages = with_looked_up(stages, written, plan.row_prefetch, ahead, node.dims, scope)
    emitter = Emitter(scope, None)
    count = emitter.index(product(v.extent for v in node.dims))
    return LoopKernel(
        "rows.cpp.j2",
        scope.params(),
        rows,
        count,
        emitter.index(work),
        tuple(stages),
        (*locals_, *_tables(scope), *memory_of(gathered)),
        scope.streams(),
        ahead=ahead,
        setup=_setup(scope),
        gathered=gathered,
    )


def _tables(scope: Scope) -> tuple[LocalView, ...]:
    """The memory of what is known of tables."""
    rows = (scope.tables or {}).items()
    return tuple(LocalView(f"{name}_lanes", "int32_t", f"lookup_size({n})") for (_, n, _), name in rows)


def _setup(scope: Scope) -> tuple[str, ...]:
    """Statements in front of the rows of a task."""
    rows = (scope.tables or {}).items()
    return tuple(f"const Lookup {name} = lookup_table({name}_lanes, {', '.join(table)});" for table, name in rows)


def _local(buffer: Buffer, i: int, scope: Scope) -> LocalView:
    name = f"local{i}"
    scope.locals[buffer] = name
    size = buffer.size
    if size == ONE:
        return LocalView(name, SCALARS[DTYPES[buffer.dtype].compute], "")
    return LocalView(name, DTYPES[buffer.dtype].cpp, Emitter(scope, None).index(size))
