"""Views of maps that read a tensor across their lanes: blocks of it are turned in registers first.

    for i  for j  y[i*J + j] = f(x[j*I + i])      ->      for blocks of i and j:  turn x's block, then rows of it

`j` runs along the lanes; `i`, along which x is dense, is called the cross loop.
"""

from __future__ import annotations

from collections import Counter

from ..ir.dtypes import DTYPES
from ..ir.expr import Load
from ..ir.index import ONE, Indirect, Var, product
from ..ir.nodes import Map
from .emit import HALVES, Emitter
from .scope import Scope
from .statements import emit_stores, lanes_view, only_moves
from .views import Loop, TileKernel, TileView

#: lanes of a block, and bytes of it along the cross loop: four lines of the cache, so that the next are fetched in time
BLOCK_LANES = 64
BLOCK_BYTES = 256
#: blocks of one kernel: what is in use at once has to fit the first level cache
MAX_TILES = 2
LEAST = 4  # elements along either loop: a shorter one is not worth a block


def cross_loop(node: Map, vector: Var) -> Var | None:
    """The loop along which most of the loads that step over memory from lane to lane are dense; None without such."""
    votes: Counter[Var] = Counter()
    for load in _across(node, vector):
        votes.update(v for v in node.dims if v is not vector and load.index.coefficient(v) == ONE)
    if not votes or _short(vector):
        return None
    best = max(votes, key=lambda v: (votes[v], -node.dims.index(v)))
    return None if _short(best) else best


def _short(v: Var) -> bool:
    return v.extent.constant is not None and v.extent.constant < LEAST


def _across(node: Map, vector: Var) -> list[Load]:
    """The loads whose step from lane to lane is the same everywhere and neither 0 nor 1."""
    found = []
    for load in dict.fromkeys(ld for s in node.stores for ld in s.value.loads):
        step = load.index.coefficient(vector)
        plain = not any(isinstance(a, Indirect) for a in load.index.atoms())
        if plain and step is not None and step.terms and step != ONE:
            found.append(load)
    return found


def tile_view(node: Map, vector: Var, cross: Var, comment: tuple[str, ...]) -> TileKernel:
    """The view of a map with its blocks; loads that are dense along neither loop stay gathers."""
    scope = Scope(frozenset(node.writes()), node.origin.describe(), may_stream=True)
    plain = Emitter(scope, None)
    outer = [v for v in node.dims if v is not vector and v is not cross]
    loops = tuple(Loop(scope.loop(v), plain.index(v.extent)) for v in outer)
    row, lane = scope.loop(cross), scope.loop(vector)
    turned = [ld for ld in _across(node, vector) if ld.index.coefficient(cross) == ONE][:MAX_TILES]
    tiles, places, bits = [], {}, only_moves(node)
    for i, load in enumerate(turned):
        step = load.index.coefficient(vector)
        assert step is not None
        source = f"{scope.buffer(load.buffer)} + {plain.index(load.index)}"
        tiles.append(TileView(f"tile{i}", DTYPES[load.buffer.dtype].cpp, source, plain.index(step)))
        tile = f"as_bits(tile{i})" if bits and load.buffer.dtype in HALVES else f"tile{i}"
        places[load] = f"{tile} + ({row} - {row}_begin) * {BLOCK_LANES} + {lane} - {lane}_begin"
    full, part = (Emitter(scope, vector, part=p, turned=places, moves_bits=bits) for p in (False, True))
    emit_stores(full, node)
    emit_stores(part, node)
    return TileKernel(
        "map_tiles.cpp.j2",
        comment,
        scope.params(),
        loops,
        plain.index(product(v.extent for v in outer)),
        Loop(row, plain.index(cross.extent)),
        BLOCK_BYTES // max(DTYPES[ld.buffer.dtype].size for ld in turned),
        BLOCK_LANES,
        tuple(tiles),
        lanes_view(vector, scope, full, part),
        scope.streams(),
    )
