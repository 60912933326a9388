"""The blocks of a map that reads operands across its lanes: they are transposed in registers first.

for i  for j  y[i*J + j] = f(x[j*I + i])      ->      for blocks of i and j:  transpose x's block, then rows of it
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import ONE, Var
from ...ir.nodes import Map
from ...ir.plans.loop import TilePlan
from ...machine.cpu import LINE, SET_STRIDE
from .vector_axis import across

TILE_BYTES = 64  # mycc::kTransposedBytes: of the rows that are transposed together
#: bytes of a block of lanes, and of the rows of memory that they are taken from, and as many elements at most
LANE_BYTES, MOST_LANES = 256, 128  # mycc::kTransposedRows
ROW_BYTES, MOST_ROWS = 1024, 256
#: fewer lanes, whole vectors of any transposed operand, in more of a cache's sets: rows are taken whole where they fit
STREAM_BYTES, MOST_STREAMS, LEAST_STREAMS = (2 * LINE, LINE), 64, 16
#: bytes of blocks of whole rows: this one and the next have to fit a second level cache
WHOLE_BYTES = 200 << 10
#: tiles of one kernel: what is in use at once has to fit the first level cache
MAX_TILES = 2
MOST_NARROWER = 4  # times than the widest: a vector of a transposed operand has to fit the tile


def tile_plan(node: Map, lanes: Var, cross: Var) -> TilePlan:
    """The blocks of a map, and the operands that are transposed; those dense along neither loop are gathered."""
    dense = [ld for ld in across(node, lanes) if ld.index.coefficient(cross) == ONE][:MAX_TILES]
    size = max(DTYPES[ld.buffer.dtype].size for ld in dense)
    operands = [ld for ld in dense if DTYPES[ld.buffer.dtype].size >= size // MOST_NARROWER]
    rows, columns = _block_shape(operands, lanes, cross, size)
    return TilePlan(cross, rows, columns, TILE_BYTES // size, tuple(operands))


def _block_shape(operands: Sequence[Load], lanes: Var, cross: Var, size: int) -> tuple[int, int]:
    """Rows and lanes of a block, of elements of `size` bytes: whole rows of memory where these fit: one stream."""
    extent, pitches = cross.extent.constant, [load.index.coefficient(lanes) for load in operands]
    if any(pitch is None or (pitch.constant or 0) * size % SET_STRIDE == 0 for pitch in pitches):
        return min(ROW_BYTES // size, MOST_ROWS), min(LANE_BYTES // size, MOST_LANES)
    least = max(LEAST_STREAMS, LINE // min(DTYPES[load.buffer.dtype].size for load in operands))
    widths = [max(min(of // size, MOST_STREAMS), least) for of in STREAM_BYTES]
    for columns in widths:
        if extent and extent * size * columns * len(operands) <= WHOLE_BYTES:
            return extent, columns
    return ROW_BYTES // size, widths[0]
