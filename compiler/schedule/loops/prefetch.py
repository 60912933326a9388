"""Software prefetches of operands: the operand, the index, and the level of the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load
from ...ir.index import ONE, Atom, Index, Indirect, Var
from ...ir.lanes import depends, lane_stride
from ...ir.plans.loop import Prefetch
from ...machine.cpu import STREAM_PREFETCH
from .interleaved_streams import in_memory

MOST_STRIDE = 4  # elements from lane to lane of a stream
NOWHERE: Mapping[Atom, Index] = {}


def prefetches(
    column: Var, expressions: Iterable[Expr], rows: Sequence[Var],
    moved: Mapping[Atom, Index] = NOWHERE, far: bool = False,
) -> tuple[Prefetch, ...]:  # fmt: skip
    """Fetches of what neighbours along `column` read in `rows` and nobody else does; `moved`: elsewhere.

    far: it is no stream, and the hardware does not find it: into the second level cache.
    """
    places = {(e.buffer, e.index): None for value in expressions for e in value.walk() if isinstance(e, Load)}
    return tuple(
        Prefetch(buffer, index.substitute(dict(moved)), 2 if far else 1)
        for buffer, index in places
        if buffer.kind != "local" and lane_stride(index, column) == ONE and any(depends(index, v) for v in rows)
        if not any(isinstance(a, Indirect) for a in index.atoms())
    )


def stream_prefetches(
    lanes: Var, expressions: Iterable[Expr], row: Var, outer: Sequence[Var], first: Mapping[Atom, Index] = NOWHERE
) -> tuple[Prefetch, ...]:
    """Fetches of what follows in memory on the rows of `lanes` that lie one behind the other along `row`.

    outer: loops around them, one of which a stream depends on; first: where loops within a vector begin.
    """
    found: dict[Prefetch, None] = {}
    for load in dict.fromkeys(load for e in expressions for load in e.loads):
        stride = _stride_of_stream(load.index, lanes, row)
        if not stride or load.buffer.kind == "local" or not any(depends(load.index, v) for v in outer):
            continue
        if in_memory(load):
            ahead = load.index.substitute(dict(first)) + STREAM_PREFETCH // DTYPES[load.buffer.dtype].size
            found |= {Prefetch(load.buffer, ahead, 1, i): None for i in range(stride)}
    return tuple(found)


def _stride_of_stream(index: Index, lanes: Var, row: Var) -> int:
    """Elements from lane to lane, where the next row of lanes lies behind this one or near; 0: it does not."""
    step, apart = lane_stride(index, lanes), index.coefficient(row)
    stride = (step.constant if step is not None else 0) or 0
    near = apart is not None and 0 < (apart.constant or 0) <= 2 * stride * (lanes.extent.constant or 0)
    return stride if near and stride <= MOST_STRIDE else 0
