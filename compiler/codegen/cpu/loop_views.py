"""Views of loop kernels: maps, reductions and nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import (
    ONE,
    Var,
    as_index,
    product,
)
from ...ir.nodes import Map, Nest, Reduce
from ...ir.plans.loop import Form, LoopPlan, Prefetch, ReductionKind
from ...schedule.loops.store_policy import NARROW, only_moves
from ...schedule.loops.write_combining import Stage as Written
from .emit import Emitter
from .pipeline_views import pipelined_columns_view
from .prefetch_nests import fetching, with_lookup_prefetches, with_stage_prefetches
from .prefetch_rows import (
    row_prefetch_view,
    with_row_prefetches,
)
from .reduction_views import (
    SCALARS,
    arg_view,
    columns_view,
    horizontal_reduction_view,
    loops_of,
)
from .row_pipeline_views import pipelined_rows_view
from .row_stream_views import row_stream_view
from .sample_pipeline_views import sample_view
from .scope import Scope
from .statements import emit_stores, lanes_view
from .tile_views import tile_view
from .transposed_views import transposed_view
from .vertical_reduction_views import vertical_reduction_view
from .views.kernel import KernelView
from .views.loop_kernels import FlatKernel, LoopKernel, Stage
from .views.loops import CombinedRow, Lanes, LocalView, Loop, MapStage
from .window_views import window_view
from .write_combining import gather, memory_of


def loop_view(node: Map | Reduce | Nest, plan: LoopPlan) -> KernelView:
    """The view of a kernel made of loops."""
    scope = Scope(
        frozenset(node.writes()), node.origin.describe(), nontemporal=plan.nontemporal, whole_lines=plan.aligned_lines
    )
    if plan.transposed is not None:
        return transposed_view(plan.transposed, plan.vertical, scope)
    if isinstance(node, Nest):
        return _nest_view(node, plan, scope)
    if plan.windows is not None and plan.window_walk is not None and isinstance(node, Reduce):
        return window_view(node, plan.windows, plan.window_walk, plan.combined, scope)
    (vector,) = plan.vector
    match plan.form, node:
        case Form.FLAT, Map() if vector is not None:
            lanes = fetching(_map_lanes(node, vector, scope, any(plan.peel)), plan.fetched(0), vector, scope)
            return FlatKernel("map_flat.cpp.j2", scope.params(), lanes, scope.streams())
        case Form.TILES, Map() if vector is not None and plan.tile is not None:
            return tile_view(node, vector, plan.tile, scope)
        case Form.COLUMNS, Reduce() if vector is not None:
            return _columns(node, vector, plan, scope)
    return _rows(node, vector, plan, scope)


def _rows(node: Map | Reduce, vector: Var | None, plan: LoopPlan, scope: Scope) -> KernelView:
    """A kernel of one stage for each turn of the parallel loops."""
    parallel, written = plan.parallel, Written(node, vector)
    inner = [v for v in node.dims if v is not vector and v not in parallel]
    combined = gather(plan.combined, [written], parallel, scope)
    rows = loops_of(parallel, scope, Emitter(scope, None))
    scope.tables = {} if rows else None
    stage = stage_view(node, 0, plan, inner, scope, fetches=False)
    emitter = Emitter(scope, None)
    count = emitter.product(v.extent for v in parallel)
    prefetch = None if plan.row_prefetch is None else row_prefetch_view(plan.row_prefetch, parallel, scope)
    if isinstance(node, Map) and isinstance(stage, MapStage) and vector is not None:
        if plan.row_prefetch is not None and prefetch is not None:
            stage = with_row_prefetches(stage, prefetch, plan.row_prefetch, vector)
        elif combined and inner:
            stage = _leaving(stage, combined, plan.fetched(0), vector, scope)
    work = [v.extent for v in (*inner, *([vector] if vector in node.dims and vector else []))]
    if isinstance(node, Reduce):
        work += [v.extent for v in node.rdims]
    kernel = LoopKernel(
        "rows.cpp.j2",
        scope.params(),
        rows,
        count,
        emitter.product(work),
        (stage,),
        (*_tables(scope), *memory_of(combined)),
        scope.streams(),
        prefetch=prefetch,
        setup=_setup(scope),
        combined=combined,
    )
    streams = plan.horizontal[0].row_streams if plan.horizontal and plan.horizontal[0] is not None else None
    if streams is None or vector is None:
        return kernel
    return row_stream_view(kernel, streams, vector, scope)


def _columns(node: Reduce, vector: Var, plan: LoopPlan, scope: Scope) -> LoopKernel:
    """A kernel over blocks of columns."""
    kept, (walk,) = plan.parallel, plan.walk
    assert walk is not None
    columns = walk.columns
    blocks = (vector.extent + (columns - 1)) // as_index(columns)
    emitter = Emitter(scope, None)
    rows = loops_of(kept, scope, emitter)
    extent, start = emitter.index(vector.extent), f"block * {columns}"
    span = ("0", extent)
    if blocks != ONE:
        rows, span = (*rows, Loop("block", emitter.index(blocks))), (start, f"smaller({start} + {columns}, {extent})")
    if plan.reduction == (ReductionKind.ARGMAX,):
        view: Stage = arg_view(node, vector, (), scope, walk, span)
    else:
        view = columns_view(node, vector, (), scope, walk, *span)
    width = as_index(min(vector.extent.constant or columns, columns))
    work = width * product(v.extent for v in node.rdims)
    count = emitter.product([*(v.extent for v in kept), blocks])
    texts = (rows, count, emitter.index(work), (view,), (), scope.streams())
    return LoopKernel("rows.cpp.j2", scope.params(), *texts)


def _leaving(
    stage: MapStage, combined: Sequence[CombinedRow], found: Sequence[Prefetch], vector: Var, scope: Scope
) -> MapStage:
    """A block of rows whose lines leave row by row, while what follows in memory is fetched."""
    assert stage.lanes is not None
    length = stage.lanes.extent if stage.lanes.extent.isdigit() else f"({stage.lanes.extent})"
    have = tuple(f"{g.lines}.have(({stage.loops[-1].name} + 1) * {length});" for g in combined)
    return replace(stage, lanes=fetching(stage.lanes, found, vector, scope), after=have)


# stages --------------------------------------------------------------------------------------------------------------
def stage_view(
    node: Map | Reduce, i: int, plan: LoopPlan, inner: Sequence[Var], scope: Scope, fetches: bool = True
) -> Stage:
    """The view of stage `i` of a kernel; inner: the loops around its lanes."""
    loops, vector = loops_of(inner, scope, Emitter(scope, None)), plan.vector[i]
    walk = plan.walk[i] if plan.walk else None
    horizontal = plan.horizontal[i] if plan.horizontal else None
    if isinstance(node, Map):
        view: Stage = map_stage(node, vector, scope, loops, bool(plan.peel) and plan.peel[i])
    else:
        match plan.reduction[i]:
            case ReductionKind.ARGMAX:
                view = arg_view(node, vector, loops, scope, walk, horizontal=horizontal)
            case ReductionKind.HORIZONTAL if vector is not None and horizontal is not None:
                view = horizontal_reduction_view(node, vector, loops, scope, horizontal)
            case ReductionKind.COLUMNS if vector is not None and walk is not None:
                last = Emitter(scope, None).index(vector.extent)
                view = columns_view(node, vector, loops, scope, walk, "0", last)
            case _:
                vertical = plan.vertical[i]
                assert vertical is not None
                view = vertical_reduction_view(vertical, vector, loops, scope)
    return with_stage_prefetches(view, plan.fetched(i), vector, scope) if fetches else view


def map_stage(
    node: Map, vector: Var | None, scope: Scope, loops: tuple[Loop, ...] = (), peel: bool = False
) -> MapStage:
    """The innermost part of a map: lanes along `vector`, or single elements."""
    if vector is not None:
        return MapStage(loops, _map_lanes(node, vector, scope, peel))
    emitter = Emitter(scope, None)
    emit_stores(emitter, node)
    return MapStage(loops, None, (*emitter.pre, *emitter.body))


def _map_lanes(node: Map, vector: Var, scope: Scope, peel: bool = False) -> Lanes:
    scope.loop(vector)
    bits = only_moves(node) and not any(b in scope.locals for b in (*node.reads(), *node.writes()))
    main, tail = (Emitter(scope, vector, tail=p, moves_bits=bits) for p in (False, True))
    peeled = node.stores[0] if peel else None
    if peeled is not None:
        scope.peeled.add(peeled)
    emit_stores(main, node)
    emit_stores(tail, node)
    moved = main.moved_row(node.stores, NARROW) if bits else ""
    first = main.target(peeled) if peeled is not None else ""
    return lanes_view(vector, scope, main, tail, moved=moved, peel=first)


# nests ---------------------------------------------------------------------------------------------------------------
def _nest_view(node: Nest, plan: LoopPlan, scope: Scope) -> KernelView:
    locals_ = tuple(_local(b, i, scope) for i, b in enumerate(node.locals))
    match plan.form:
        case Form.PIPELINED_SAMPLES:
            return sample_view(node, plan, locals_, scope, stage_view)
        case Form.PIPELINED_ROWS:
            return pipelined_rows_view(node, plan, locals_, scope)
        case Form.PIPELINED_COLUMNS:
            return pipelined_columns_view(node, plan, locals_, scope)
    return _nest(node, plan, locals_, scope)


def _nest(node: Nest, plan: LoopPlan, locals_: tuple[LocalView, ...], scope: Scope) -> LoopKernel:
    rows = loops_of(node.dims, scope, Emitter(scope, None))
    scope.tables = {} if rows else None
    stages: list[Stage] = []
    work = as_index(0)
    written = [Written(*pair) for pair in zip(node.stages, plan.vector, strict=True)]
    combined = gather(plan.combined, written, node.dims, scope)
    for i, (stage, vector) in enumerate(zip(node.stages, plan.vector, strict=True)):
        inner = [v for v in stage.dims[len(node.dims) :] if v is not vector]
        stages.append(stage_view(stage, i, plan, inner, scope))
        extents = [v.extent for v in stage.dims[len(node.dims) :]]
        extents += [v.extent for v in stage.rdims] if isinstance(stage, Reduce) else []
        work = work + product(extents)
    prefetch = None if plan.row_prefetch is None else row_prefetch_view(plan.row_prefetch, node.dims, scope)
    if plan.row_prefetch is not None and prefetch is not None:
        stages = with_lookup_prefetches(stages, written, plan.row_prefetch, prefetch, node.dims, scope)
    emitter = Emitter(scope, None)
    count = emitter.product(v.extent for v in node.dims)
    return LoopKernel(
        "rows.cpp.j2",
        scope.params(),
        rows,
        count,
        emitter.index(work),
        tuple(stages),
        (*locals_, *_tables(scope), *memory_of(combined)),
        scope.streams(),
        prefetch=prefetch,
        setup=_setup(scope),
        combined=combined,
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
