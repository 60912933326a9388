"""Loop interchange of copies of whole lines: they read memory in order.

for i:170  for j:12  for k:128  for l:64  y[((i*12 + j)*128 + k)*64 + l] = x[((i*128 + k)*12 + j)*64 + l]
                         ->      for i:170  for k:128  for j:12  for l:64  y[..] = x[..]

A loop that reads backwards is reversed. Loads wait for memory, and the hardware prefetches the next lines of a page.
Nothing waits for non-temporal stores of whole lines, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Index, Var
from ...ir.lanes import depends
from ...ir.nodes import Map, Store
from ...ir.rewrite import reorder, reverse
from ...machine.cpu import BEYOND_L2, LINE, NONTEMPORAL
from ..cost.estimates import number
from ..graph import NodeGraph
from .collapse import collapse
from .vector_axis import step_of, vector_loop


def interchange_copies(graph: NodeGraph) -> None:
    """Reorders the loops of each copy, so that the side that waits for memory longer is walked in its order."""
    for node in list(graph.nodes):
        if isinstance(node, Map):
            merged = collapse(node)
            steps = _steps(merged)
            if steps:
                graph.replace(node, _in_read_order(merged, steps))


def _in_read_order(node: Map, steps: Mapping[Var, int]) -> Map:
    nontemporal = (
        _bytes(node.stores[0]) >= NONTEMPORAL
    )  # else they come into the caches, in the order in which they lie
    forward = reverse(node, [v for v, step in steps.items() if nontemporal and step < 0])
    return reorder(forward, (*sorted(steps, key=lambda v: -abs(steps[v])), node.dims[-1]))


def _steps(node: Map) -> dict[Var, int]:
    """How far the one operand that is as large as the result goes from turn to turn of the kept loops; empty: there is
    none, or the result is not made of whole lines."""
    if len(node.stores) != 1 or len(node.dims) < 2 or vector_loop(node) is not node.dims[-1]:
        return {}
    (store,), (*rows, lane) = node.stores, node.dims
    whole = [ld for ld in dict.fromkeys(store.value.loads) if all(depends(ld.index, v) for v in node.dims)]
    if len(whole) != 1 or whole[0].index.coefficient(lane) != ONE or not _whole_lines(store, lane):
        return {}
    steps = {v: step_of(whole[0], v) for v in rows}
    return steps if all(steps.values()) else {}


def _whole_lines(store: Store, lane: Var) -> bool:
    size = DTYPES[store.buffer.dtype].size
    rest: Index = store.index.without(lane)
    lines = all(c * size % LINE == 0 for c in rest.terms.values()) and store.index.coefficient(lane) == ONE
    return lines and _bytes(store) >= BEYOND_L2


def _bytes(store: Store) -> int:
    """Of the buffer that is stored to."""
    return number(store.buffer.size) * DTYPES[store.buffer.dtype].size
