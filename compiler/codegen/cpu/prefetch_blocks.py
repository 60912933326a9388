"""Regions: neighbouring blocks of columns. What one reads of memory is fetched while the one before it is computed.

k: rows of memory, b: blocks of 32 columns, 4 of them a region

    x[0, :]  | b0 b1 b2 b3 | b4 b5 b6 b7 | ..       for b in b0 .. b3, for k: compute upon x[k, b]
    x[1, :]  | b0 b1 b2 b3 | b4 b5 b6 b7 | ..         and fetch some more of x[0, b4 .. b7], then of x[1, b4 .. b7], ..

A block is narrow, so that what is kept of it stays in the first cache; read by itself it would be two lines of every
row of memory. The runs of a region are as long as the second level cache allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import (
    ZERO,
    Atom,
    Index,
    Var,
)
from ...schedule.loops.pipeline_blocks import is_stream
from .emit import Emitter
from .scope import Scope
from .views.pipelined_kernels import ComingRows


def coming_rows(
    scope: Scope, name: str, loads: Iterable[Load], row: Var, column: Var, first: Mapping[Atom, Index], blocks: int
) -> tuple[ComingRows, ...]:
    """What is fetched of a region of `blocks`, as name0 and so on. first: the loops of the nest at its first block."""
    text = Emitter(scope, None)
    width = column.extent.constant or 0
    found: list[ComingRows] = []
    for load in loads:
        step = load.index.coefficient(row)
        if step is not None and is_stream(load, row, column):
            place = text.index(load.index.substitute({**first, row: ZERO, column: ZERO}))
            source = f"{scope.buffer(load.buffer)} + {place}"
            size = DTYPES[load.buffer.dtype].size
            found.append(ComingRows(f"{name}{len(found)}", source, text.index(step), blocks * width, size))
    return tuple(found)
