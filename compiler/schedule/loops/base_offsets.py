"""Base-offset hoisting: the host program adds constant offsets to the addresses of buffers, so that the steps of a
recurrence, which differ only in these, share one function.

    y0[i] = x0[i*1024 + 803072]      ->      y0[i] = x0[i*1024], x0 + 803072 passed by the host program
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Expr, Load, rewrite
from ...ir.index import Index
from ...ir.lanes import direct
from ...ir.nodes import Map, Nest, Reduce, Store
from ...ir.program import AnyNode
from ...ir.rewrite import map_expressions
from ...machine.cpu_loops import LANE_LOOPS
from .lane_bounds import MOST_APART


def with_base_offsets(node: AnyNode) -> tuple[AnyNode, dict[Buffer, int]]:
    """The node without the starts of its buffers in its indices, and those starts by root buffer, in elements."""
    if not isinstance(node, Map | Reduce | Nest):
        return node, {}
    if any(direct(s.index) != s.index for part in _parts(node) for s in part.stores):
        return node, {}
    lowest: dict[Buffer, int] = {}
    for buffer, index in _accesses(node):
        root = buffer.root
        start = 0 if _fixed(index) else max(index.terms.get((), 0), 0)
        lowest[root] = min(lowest.get(root, start), start)
    own = {b.root for b in node.locals} if isinstance(node, Nest) else set()
    unit = LANE_LOOPS.aligned
    base_offsets = {b: n // unit * unit for b, n in lowest.items() if n >= unit and b not in own}
    if not base_offsets:
        return node, base_offsets
    if isinstance(node, Nest):
        return replace(node, stages=tuple(_shifted(s, base_offsets) for s in node.stages)), base_offsets
    return _shifted(node, base_offsets), base_offsets


def _parts(node: Map | Reduce | Nest) -> Sequence[Map | Reduce | Nest]:
    return node.stages if isinstance(node, Nest) else (node,)


def _accesses(node: Map | Reduce | Nest) -> Iterator[tuple[Buffer, Index]]:
    for part in _parts(node):
        yield from ((s.buffer, s.index) for s in part.stores)
        yield from ((ld.buffer, ld.index) for e in part.expressions() for ld in e.loads)


def _fixed(index: Index) -> bool:
    """Whether an access needs its buffer's own begin: lanes may lie some elements apart, and where it begins says which
    of them whole vectors hold; or the place is read from memory."""
    apart = any(1 < abs(c) <= MOST_APART for monomial, c in index.terms.items() if monomial)
    return apart or direct(index) != index


def _shifted(node: Map | Reduce, base_offsets: dict[Buffer, int]) -> Map | Reduce:
    def moved(buffer: Buffer, index: Index) -> Index:
        return index - base_offsets.get(buffer.root, 0)

    def leaf(e: Expr) -> Expr | None:
        return Load(e.buffer, moved(e.buffer, e.index)) if isinstance(e, Load) else None

    changed = map_expressions(node, lambda e: rewrite(e, leaf))
    return replace(changed, stores=tuple(Store(s.buffer, moved(s.buffer, s.index), s.value) for s in changed.stores))
