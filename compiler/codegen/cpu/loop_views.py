"""Views of loop kernels: maps, reductions and nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, substitute
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
from ...ir.plans.loop import LoopPlan
from ...schedule.cost.estimates import is_long
from ...schedule.graph import map_expressions
from ...schedule.loops.collapse import collapse, collapse_rows
from ...schedule.loops.row_form import flattened
from ...schedule.loops.sliding_window import rolled
from ...schedule.loops.transpose_rows import turned_rows
from ...schedule.loops.vector_axis import arg_loop, cross_loop, keeps_places, vector_loop
from .bounds import MOST_APART, inside
from .emit import Emitter
from .interleave import weave
from .nontemporal import is_led
from .pipeline_views import phase_view
from .prefetch import fetches, stream_ahead, widest
from .prefetch_nests import with_looked_up, with_stage_fetches
from .prefetch_rows import (
    ahead_view,
    jumping_reads,
    reads_on,
    row_reads,
    short_ahead,
    with_fetches,
)
from .reduction_views import (
    SCALARS,
    arg_view,
    block_columns,
    columns_view,
    folds_columns,
    loops_of,
    row_fold_view,
)
from .row_pipeline_views import row_phase_view
from .row_stream_views import row_stream_view
from .sample_pipeline_views import sample_view
from .scope import Scope
from .shared_rows import in_shared_pieces
from .statements import emit_stores, lanes_view, only_moves
from .tile_views import tile_view
from .transposed_views import turned_view
from .vertical_reduction_views import lane_fold_view
from .views.kernel import KernelView
from .views.loop_kernels import FlatKernel, LoopKernel, Stage
from .views.loops import GatheredRow, Lanes, LocalView, Loop, MapStage
from .views.reductions import LaneFold
from .window_views import window_view
from .write_combining import Stage as Written
from .write_combining import gather, memory_of

FETCHED_AHEAD = 4096  # bytes
NARROW = 2  # bytes of elements of which a vector of lanes fills no register
SHORT_ROW = 8  # elements of rows that are taken together to fill a vector
SHORT_BYTES = 512  # of rows that are gathered several at a time
#: elements of a window that are folded one by one, the windows side by side
SHORT_WINDOW, LEAST = 16, 2


def loop_view(node: Map | Reduce | Nest, plan: LoopPlan) -> KernelView:
    """The view of a kernel made of loops."""
    scope = Scope(frozenset(node.writes()), node.origin.describe(), nontemporal=plan.nontemporal)
    scope.whole_lines = isinstance(node, Map) and len(node.stores) > 1 and any(is_long(s.value) for s in node.stores)
    turned = turned_rows(node) if isinstance(node, Reduce | Nest) else None
    if turned is not None:
        return turned_view(turned, scope)
    if isinstance(node, Nest):
        node = collapse_rows(node)
        locals_ = tuple(_local(b, i, scope) for i, b in enumerate(node.locals))
        if node.walk is not None:
            return sample_view(node, locals_, scope, _lanes, _stage)
        if not node.phases:
            return _nest(node, locals_, scope)
        along = all(s.dims == node.dims for s in node.stages if isinstance(s, Reduce))
        return (row_phase_view if along else phase_view)(node, locals_, scope)
    node = collapse(node)
    if isinstance(node, Reduce) and (windows := rolled(node)) is not None:
        return window_view(node, windows, scope)
    if isinstance(node, Reduce):
        node = in_shared_pieces(node, _lanes(node))
    woven = weave(node) if isinstance(node, Map) else None
    if isinstance(node, Map) and not woven:
        node = _without_short_rows(node)
    node, vector = woven or (node, _lanes(node))
    if isinstance(node, Map) and vector is not None and node.dims == (vector,):
        lanes = _fetching_ahead(_map_lanes(node, vector, scope), node, vector, scope)
        return FlatKernel("map_flat.cpp.j2", scope.params(), lanes, scope.streams())
    if isinstance(node, Map) and vector is not None and not woven and (cross := cross_loop(node, vector)) is not None:
        return tile_view(node, vector, cross)
    kept = [v for v in node.dims if v is not vector]
    if isinstance(node, Reduce) and vector is not None and folds_columns(node, vector):
        return _columns(node, vector, kept, scope)
    parallel, inner = _split_rows(kept, vector in node.dims)
    reads = jumping_reads(node, vector, kept) if isinstance(node, Map) and vector is not None else ()
    if reads:
        parallel, inner = kept, []
    written = Written(node, vector)
    gathered: tuple[GatheredRow, ...] = ()
    if isinstance(node, Map) and (block := _block_of_rows(written, kept)) is not None:
        gathered = gather([written], block, scope)
        if gathered:
            parallel, inner, reads = block, kept[-1:], ()
    if not gathered:
        gathered = gather([written], parallel, scope)
        if gathered and not reads and isinstance(node, Map):
            reads = row_reads([written], parallel)
    rows = loops_of(parallel, scope, Emitter(scope, None))
    scope.tables = {} if rows else None
    stage = _stage(node, vector, inner, scope)
    emitter = Emitter(scope, None)
    count = emitter.index(product(v.extent for v in parallel))
    ahead = None
    if reads and isinstance(stage, MapStage) and vector is not None:
        ahead = ahead_view(reads, emitter.index(product(v.extent for v in parallel) - 1), scope)
        stage = with_fetches(stage, ahead, reads, vector)
    elif isinstance(node, Reduce) and (gathered or isinstance(stage, LaneFold)):
        ahead = short_ahead([written], parallel, scope)
    elif gathered and inner and isinstance(node, Map) and isinstance(stage, MapStage) and vector is not None:
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


def _without_short_rows(node: Map) -> Map:
    """Rows that fill no vector as one loop, where they are long to compute: then lanes cost more than lookups.

    for e:8000  for h:4  y[e*4 + h] = exp(x[e*4 + h] - m[at[e]*4 + h])
                                                      ->      for n:32000  y[n] = exp(x[n] - m[at[n//4]*4 + n%4])
    """
    vector = vector_loop(node)
    if vector is None or len(node.dims) < 2 or vector is not node.dims[-1]:
        return node
    if (vector.extent.constant or SHORT_ROW) >= SHORT_ROW or not any(is_long(s.value) for s in node.stores):
        return node
    one = Var(vector.name, node.dims[-2].extent * vector.extent)
    places = flattened(node.dims[-2:], one)
    changed = map_expressions(node, lambda e: substitute(e, places), lambda i: i.substitute(places))
    flat = replace(changed, dims=(*node.dims[:-2], one))
    return flat if vector_loop(flat) is one else node


def _lanes(node: Map | Reduce, rows: int = 0) -> Var | None:
    """The loop along the lanes; rows: loops of the nest around it, which have none.

    Windows that a vector is too long for lie side by side in the lanes.
    """
    found = vector_loop(node) or arg_loop(node)
    if not isinstance(node, Reduce) or found not in node.rdims or len(node.dims) <= rows:
        return found
    window, last = found.extent.constant, node.dims[-1]
    if window is None or window >= SHORT_WINDOW or (last.extent.constant or SHORT_WINDOW) < LEAST:
        return found
    near = all(_near(f.value, last) for f in node.folds)
    return last if near and all(s.index.coefficient(last) == ONE for s in node.stores) else found


def _near(value: Expr, last: Var) -> bool:
    """Whether what is read lies near from turn to turn of a loop, but for places that are left out."""
    if isinstance(value, Call) and value.op == "where" and inside(value, last) is not None:
        return True
    steps = [ld.index.coefficient(last) for ld in value.loads]
    return all(step is not None and 0 <= (step.constant or -1 if step.terms else 0) <= MOST_APART for step in steps)


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


def _split_rows(kept: Sequence[Var], vectorised: bool) -> tuple[list[Var], list[Var]]:
    """The loops that run in parallel, and those that stay inside: the last one, when there are many."""
    if len(kept) >= 3 and vectorised:
        return list(kept[:-1]), [kept[-1]]
    return list(kept), []


def _block_of_rows(stage: Written, kept: Sequence[Var]) -> list[Var] | None:
    """The parallel loops where short rows are taken together, the last loop around them inside: what a row costs beside
    its elements counts. None: they are long, or the hardware does not find what is read for them."""
    if len(kept) < 2 or stage.lanes is None:
        return None
    row = (stage.lanes.extent.constant or SHORT_BYTES) * max(DTYPES[s.buffer.dtype].size for s in stage.node.stores)
    return list(kept[:-1]) if row < SHORT_BYTES and reads_on(stage, kept[:-1], kept[-1]) else None


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
def _nest(node: Nest, locals_: tuple[LocalView, ...], scope: Scope) -> LoopKernel:
    rows = loops_of(node.dims, scope, Emitter(scope, None))
    scope.tables = {} if rows else None
    stages: list[Stage] = []
    work = as_index(0)
    collapsed = [collapse(stage, keep=len(node.dims)) for stage in node.stages]
    lanes = [_row_lanes(stage, node.dims) for stage in collapsed]
    written = [Written(*pair) for pair in zip(collapsed, lanes, strict=True)]
    gathered = gather(written, node.dims, scope)
    for i, (stage, vector) in enumerate(zip(collapsed, lanes, strict=True)):
        inner = [v for v in stage.dims[len(node.dims) :] if v is not vector]
        stages.append(with_stage_fetches(_stage(stage, vector, inner, scope), written, i, node.dims, scope))
        extents = [v.extent for v in stage.dims[len(node.dims) :]]
        extents += [v.extent for v in stage.rdims] if isinstance(stage, Reduce) else []
        work = work + product(extents)
    if gathered:
        ahead = short_ahead(written, node.dims, scope)
    else:
        stages, ahead = with_looked_up(stages, written, node.dims, scope)
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


def _row_lanes(stage: Map | Reduce, rows: Sequence[Var]) -> Var | None:
    """The loop of a stage's lanes; None where it is a loop over rows, for the stage is for one row then."""
    vector = _lanes(stage, len(rows))
    return None if vector in rows else vector


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
