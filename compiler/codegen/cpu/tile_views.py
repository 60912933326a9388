"""Views of maps that read a tensor across their lanes: blocks of it are transposed in registers first.

    for i  for j  y[i*J + j] = f(x[j*I + i])      ->      for blocks of i and j:  turn x's block, then rows of it

`j` runs along the lanes; `i`, along which x is dense, is called the cross loop.
"""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import ONE, ZERO, Var, product
from ...ir.narrowing import HALVES
from ...ir.nodes import Map
from ...ir.plans.loop import TilePlan
from ...machine.cpu import LINE
from ...schedule.loops.interleaved_streams import in_memory
from ...schedule.loops.store_policy import only_moves
from .emit import Emitter
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loop_kernels import ComingBlock, TileKernel, TileView
from .views.loops import Loop

WIDEST = 8  # bytes of elements whose rows are moved as they are


def tile_view(node: Map, vector: Var, plan: TilePlan, scope: Scope) -> TileKernel:
    """The view of a map with its blocks; loads that are dense along neither loop stay gathers."""
    plain, cross, columns = Emitter(scope, None), plan.cross, plan.columns
    outer = [v for v in node.dims if v is not vector and v is not cross]
    loops = tuple(Loop(scope.loop(v), plain.index(v.extent)) for v in outer)
    row, lane = scope.loop(cross), scope.loop(vector)
    tiles, places, bits = [], {}, only_moves(node)
    for i, load in enumerate(plan.operands):
        tiles.append(TileView(f"tile{i}", DTYPES[load.buffer.dtype].cpp, *_block(load, vector, scope)))
        tile = f"as_bits(tile{i})" if bits and load.buffer.dtype in HALVES else f"tile{i}"
        places[load] = f"{tile} + ({row} - tile) * {columns} + {lane} - {lane}_begin"
    main, tail = (Emitter(scope, vector, tail=p, transposed=places, moves_bits=bits) for p in (False, True))
    emit_stores(main, node)
    emit_stores(tail, node)
    coming = _coming(node, vector, cross, columns, scope)
    moved = main.moved_row(node.stores, WIDEST)
    return TileKernel(
        "map_tiles.cpp.j2",
        scope.params(),
        loops,
        plain.factor(product(v.extent for v in outer)),
        Loop(row, plain.index(cross.extent)),
        plan.rows,
        plan.columns,
        plan.depth,
        tuple(tiles),
        coming,
        lanes_view(vector, scope, main, tail, moved=moved),
        scope.streams(),
    )


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
