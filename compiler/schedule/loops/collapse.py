"""Adjacent loops become one where every access to memory is linear across both.

for i:12  for j:64  y[i*64 + j] = f(x[i*64 + j])      ->      for ij:768  y[ij] = f(x[ij])
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from ...ir.index import (
    product,
)
from ...ir.nodes import Map, Nest, Reduce, Scan, Scatter
from ...ir.rewrite import fuse
from ...machine.cpu_loops import ROW_LOOPS, TASKS
from .vector_axis import keeps_indices

N = TypeVar("N", bound=Map | Reduce | Scan)


def collapse(node: N, keep: int = 0, spare: int = 0) -> N:
    """Merges loops of a map, a reduction or a scan; the first `keep` (the rows of a nest) and the last `spare` of the
    kept loops stay as they are."""
    node = _collapse_field(node, "dims", keep, spare)
    if isinstance(node, Reduce) and not keeps_indices(node):
        node = _collapse_field(node, "rdims", 0, 0)
    return node


def filling(node: Scatter) -> Map:
    """The map that fills the result of a scatter in front of its updates."""
    return Map(node.dims, node.stores, node.origin)


def collapse_fill(node: Scatter) -> Scatter:
    """The scatter with the loops of its fill merged."""
    fill = collapse(filling(node))
    return replace(node, dims=fill.dims, stores=fill.stores)


def collapse_reduced(node: Reduce) -> Reduce:
    """The reduction with its reduced loops merged, and its kept loops as they are."""
    return _collapse_field(node, "rdims", 0, 0)


def collapse_rows(nest: Nest) -> Nest:
    """Merges short rows of a nest of maps with the loop behind them, while many rows are left.

    for i:83  for c:64  { for l:56  y[i*7168 + c*56 + l] = a[i*3584 + c*56 + l],  for l:56  y[.. + 3584] = b[..] }
        ->      for i:83  { for l:3584  y[i*7168 + l] = a[i*3584 + l],  for l:3584  y[.. + 3584] = b[..] }
    """
    while nest.dims and (changed := _without_last_row(nest)) is not None:
        nest = changed
    return nest


def _without_last_row(nest: Nest) -> Nest | None:
    (*rows, _), rank = nest.dims, len(nest.dims)
    left = product(v.extent for v in rows).constant
    plain = not nest.locals and not nest.pipeline_stages and all(isinstance(s, Map) for s in nest.stages)
    if not plain or (left is not None and left < TASKS.rows) or any(len(s.dims) == rank for s in nest.stages):
        return None
    if any((s.dims[rank].extent.constant or ROW_LOOPS.long) >= ROW_LOOPS.long for s in nest.stages):
        return None
    stages = [
        s for s in (fuse(stage, stage.dims[rank - 1], stage.dims[rank]) for stage in nest.stages) if s is not None
    ]
    return replace(nest, dims=tuple(rows), stages=tuple(stages)) if len(stages) == len(nest.stages) else None


def _collapse_field(node: N, name: str, keep: int, spare: int) -> N:
    for position in range(len(getattr(node, name)) - 2 - spare, keep - 1, -1):
        outer, inner = getattr(node, name)[position : position + 2]
        node = fuse(node, outer, inner) or node
    return node
