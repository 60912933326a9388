"""Adjacent loops that every access walks through like one become one.

for i:12  for j:64  y[i*64 + j] = f(x[i*64 + j])      ->      for ij:768  y[ij] = f(x[ij])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from ...ir.expr import IndexValue, Load, substitute
from ...ir.index import (
    ZERO,
    Atom,
    Index,
    Var,
    of,
    product,
)
from ...ir.lanes import direct
from ...ir.nodes import Map, Nest, Reduce, Scan
from ..graph import map_expressions
from .vector_axis import keeps_places

#: elements of a row that is worth a loop of its own; rows that threads can share
LONG_ROW, LEAST_ROWS = 1024, 64

N = TypeVar("N", bound=Map | Reduce | Scan)


def collapse(node: N, keep: int = 0, spare: int = 0) -> N:
    """Merges loops of a map, a reduction or a scan; the first `keep` (the rows of a nest) and the last `spare` of the
    kept loops stay as they are."""
    node = _collapse_field(node, "dims", keep, spare)
    if isinstance(node, Reduce) and not keeps_places(node):
        node = _collapse_field(node, "rdims", 0, 0)
    return node


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
    plain = not nest.locals and not nest.phases and all(isinstance(s, Map) for s in nest.stages)
    if not plain or (left is not None and left < LEAST_ROWS) or any(len(s.dims) == rank for s in nest.stages):
        return None
    if any((s.dims[rank].extent.constant or LONG_ROW) >= LONG_ROW for s in nest.stages):
        return None
    stages = [s for s in (_merged(stage, "dims", rank - 1) for stage in nest.stages) if s is not None]
    return replace(nest, dims=tuple(rows), stages=tuple(stages)) if len(stages) == len(nest.stages) else None


def _collapse_field(node: N, name: str, keep: int, spare: int) -> N:
    for position in range(len(getattr(node, name)) - 2 - spare, keep - 1, -1):
        node = _merged(node, name, position) or node
    return node


def _merged(node: N, name: str, position: int) -> N | None:
    """The node with a loop and the one behind it as one; None where an access does not walk through them so."""
    loops: tuple[Var, ...] = getattr(node, name)
    outer, inner = loops[position], loops[position + 1]
    if not all(like_one(index, outer, inner) for index in indices_of(node)):
        return None
    merged = Var(inner.name, outer.extent * inner.extent)
    merged_loops: dict[str, Any] = {name: (*loops[:position], merged, *loops[position + 2 :])}
    return replace(_substituted(node, {outer: ZERO, inner: of(merged)}), **merged_loops)


def _substituted(node: N, values: dict[Atom, Index]) -> N:
    return map_expressions(node, lambda e: substitute(e, values), lambda i: i.substitute(values))


def like_one(index: Index, outer: Var, inner: Var) -> bool:
    """Whether the index walks through both loops as through one."""
    a, b = index.coefficient(outer), index.coefficient(inner)
    return a is not None and b is not None and a == b * inner.extent


def indices_of(node: Map | Reduce | Scan) -> Iterator[Index]:
    """The places of all accesses, and the indices that are values."""
    for store in node.stores:
        yield store.index
    for expression in node.expressions():
        for e in expression.walk():
            if isinstance(e, (Load, IndexValue)):
                yield direct(e.index)  # an index inside an indirect one is a load of its own
