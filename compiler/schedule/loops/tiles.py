"""Tiles of a map with operands that are strided along the lanes: blocks of them are transposed in registers.

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
from ...machine.cpu_loops import TRANSPOSES
from .vector_axis import across

#: tiles of one kernel: what is in use at once has to fit the first level cache
MAX_TILES = 2
MOST_NARROWER = 4  # times than the widest: a vector of a transposed operand has to fit the tile


def tile_plan(node: Map, lanes: Var, cross: Var) -> TilePlan:
    """The blocks of a map, and the operands that are transposed; those dense along neither loop are gathered."""
    dense = [ld for ld in across(node, lanes) if ld.index.coefficient(cross) == ONE][:MAX_TILES]
    size = max(DTYPES[ld.buffer.dtype].size for ld in dense)
    operands = [ld for ld in dense if DTYPES[ld.buffer.dtype].size >= size // MOST_NARROWER]
    rows, columns = _block_shape(operands, lanes, cross, size)
    return TilePlan(cross, rows, columns, TRANSPOSES.tile_bytes // size, tuple(operands))


def _block_shape(operands: Sequence[Load], lanes: Var, cross: Var, size: int) -> tuple[int, int]:
    """Rows and lanes of a block, of elements of `size` bytes: whole rows of memory where these fit: one stream."""
    extent, pitches = cross.extent.constant, [load.index.coefficient(lanes) for load in operands]
    if any(pitch is None or (pitch.constant or 0) * size % SET_STRIDE == 0 for pitch in pitches):
        return min(TRANSPOSES.row_bytes // size, TRANSPOSES.rows), min(TRANSPOSES.lane_bytes // size, TRANSPOSES.lanes)
    least = max(TRANSPOSES.least_streams, LINE // min(DTYPES[load.buffer.dtype].size for load in operands))
    widths = [max(min(of // size, TRANSPOSES.most_streams), least) for of in TRANSPOSES.stream_bytes]
    for columns in widths:
        if extent and extent * size * columns * len(operands) <= TRANSPOSES.whole_bytes:
            return extent, columns
    return TRANSPOSES.row_bytes // size, widths[0]
