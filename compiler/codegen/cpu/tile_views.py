"""Views of maps that read a tensor across their lanes: blocks of it are turned in registers first.

    for i  for j  y[i*J + j] = f(x[j*I + i])      ->      for blocks of i and j:  turn x's block, then rows of it

`j` runs along the lanes; `i`, along which x is dense, is called the cross loop.
"""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import ONE, ZERO, Var, product
from ...ir.nodes import Map
from ...schedule.loops.store_policy import LINE
from ...schedule.loops.streams import in_memory
from ...schedule.loops.vector_axis import across
from .emit import HALVES, Emitter
from .scope import Scope
from .statements import emit_stores, lanes_view, only_moves
from .views.loop_kernels import ComingBlock, TileKernel, TileView
from .views.loops import Loop

TILE_BYTES = 64  # mycc::kTurnedBytes: of the rows that are turned together
#: bytes of a block of lanes, and of the rows of memory that they are taken from, and as many elements at most
LANE_BYTES, MOST_LANES = 256, 128  # mycc::kTurnedRows
ROW_BYTES, MOST_ROWS = 1024, 256
#: fewer lanes, whole vectors of any turned operand, in more of a cache's sets: rows are taken whole where they fit
STREAM_BYTES, MOST_STREAMS, LEAST_STREAMS = (2 * LINE, LINE), 64, 16
#: bytes of blocks of whole rows: this one and the next have to fit a second level cache
WHOLE_BYTES = 200 << 10
#: rows this far apart, or a multiple of it, share the sets of a cache
SET_BYTES = 4096
WIDEST = 8  # bytes of elements whose rows are moved as they are
#: tiles of one kernel: what is in use at once has to fit the first level cache
MAX_TILES = 2
MOST_NARROWER = 4  # times than the widest: a vector of a turned operand has to fit the tile


def tile_view(node: Map, vector: Var, cross: Var, scope: Scope) -> TileKernel:
    """The view of a map with its blocks; loads that are dense along neither loop stay gathers."""
    plain = Emitter(scope, None)
    outer = [v for v in node.dims if v is not vector and v is not cross]
    loops = tuple(Loop(scope.loop(v), plain.index(v.extent)) for v in outer)
    row, lane = scope.loop(cross), scope.loop(vector)
    turned = [ld for ld in across(node, vector) if ld.index.coefficient(cross) == ONE][:MAX_TILES]
    size = max(DTYPES[ld.buffer.dtype].size for ld in turned)
    turned = [ld for ld in turned if DTYPES[ld.buffer.dtype].size >= size // MOST_NARROWER]
    rows, columns = _block_shape(turned, vector, cross, size)
    tiles, places, bits = [], {}, only_moves(node)
    for i, load in enumerate(turned):
        tiles.append(TileView(f"tile{i}", DTYPES[load.buffer.dtype].cpp, *_block(load, vector, scope)))
        tile = f"as_bits(tile{i})" if bits and load.buffer.dtype in HALVES else f"tile{i}"
        places[load] = f"{tile} + ({row} - tile) * {columns} + {lane} - {lane}_begin"
    full, part = (Emitter(scope, vector, part=p, turned=places, moves_bits=bits) for p in (False, True))
    emit_stores(full, node)
    emit_stores(part, node)
    coming = _coming(node, vector, cross, columns, scope)
    moved = full.moved_row(node.stores, WIDEST)
    return TileKernel(
        "map_tiles.cpp.j2",
        scope.params(),
        loops,
        plain.factor(product(v.extent for v in outer)),
        Loop(row, plain.index(cross.extent)),
        rows,
        columns,
        TILE_BYTES // size,
        tuple(tiles),
        coming,
        lanes_view(vector, scope, full, part, moved=moved),
        scope.streams(),
    )


def _block_shape(turned: list[Load], vector: Var, cross: Var, size: int) -> tuple[int, int]:
    """Rows and lanes of a block, of elements of `size` bytes: whole rows of memory where these fit: one stream."""
    extent, pitches = cross.extent.constant, [load.index.coefficient(vector) for load in turned]
    if any(pitch is None or (pitch.constant or 0) * size % SET_BYTES == 0 for pitch in pitches):
        return min(ROW_BYTES // size, MOST_ROWS), min(LANE_BYTES // size, MOST_LANES)
    least = max(LEAST_STREAMS, LINE // min(DTYPES[load.buffer.dtype].size for load in turned))
    lanes = [max(min(of // size, MOST_STREAMS), least) for of in STREAM_BYTES]
    for columns in lanes:
        if extent and extent * size * columns * len(turned) <= WHOLE_BYTES:
            return extent, columns
    return ROW_BYTES // size, lanes[0]


def _block(load: Load, along: Var, scope: Scope) -> tuple[str, str]:
    """Where a load's part of a block starts, and the step along a loop."""
    step, plain = load.index.coefficient(along), Emitter(scope, None)
    assert step is not None
    return f"{scope.buffer(load.buffer)} + {plain.index(load.index)}", plain.index(step)


def _coming(node: Map, vector: Var, cross: Var, columns: int, scope: Scope) -> tuple[ComingBlock, ...]:
    """What to fetch for the next block: rows of memory that lie apart are no stream for the hardware."""
    found: list[ComingBlock] = []
    row, lane = (f"{scope.loops[v]}_end - {scope.loops[v]}" for v in (cross, vector))
    for load in dict.fromkeys(ld for s in node.stores for ld in s.value.loads):
        steps = {v: load.index.coefficient(v) or ZERO for v in (cross, vector)}
        size = DTYPES[load.buffer.dtype].size
        if not in_memory(load) or not all(step.terms for step in steps.values()):
            continue
        name, lines = f"next{len(found)}", max(columns * size // LINE, 1)
        if steps[cross] == ONE:
            found.append(ComingBlock(name, *_block(load, vector, scope), lane, row, lines))
        elif steps[vector] == ONE:
            found.append(ComingBlock(name, *_block(load, cross, scope), row, lane, lines))
    return tuple(found)
