"""Operands that lie across the lanes are turned first, where no tiles of the kernel itself can turn them.

                                                           for o, s:S, a:A  t[o*S*A + s*A + a] = x[o*S*A + a*S + s]
y[j, k] = 0 <= k - 1 < A ? x[(k - 1)*S + j] : 0    ->      y[j, k] = 0 <= k - 1 < A ? t[j*A + k - 1] : 0

A lane of its own for every line of memory takes ten times as long as a transposition by tiles and a read in order.
Plain maps do it within their tiles (loops.cross_loop). Sizes have to be numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..ir.bounds import largest
from ..ir.buffers import Buffer
from ..ir.dtypes import DTYPES
from ..ir.expr import Expr, Load, rewrite
from ..ir.index import ONE, Index, Var, as_index, of, product
from ..ir.lanes import depends
from ..ir.nodes import Map, Reduce, Scan, Store
from .graph import NodeGraph, map_expressions
from .loops import SCALAR_FOLDS, cross_loop, vector_loop

LEAST_STEP = 16  # elements from lane to lane: fewer share lines of memory
LEAST_BYTES = 1 << 16  # of an operand: of smaller ones the first level cache holds all lines at once
LEAST_LANES = 16  # turns of the loop over the lanes
MOST_FOLDED = 16  # elements for a result: of more, results that lie apart take less time than a copy of the operand
LEAST_READS = 0.5  # of the elements of an operand


@dataclass(frozen=True)
class _Place:
    """An index rest + row*width + column with 0 <= row < height and 0 <= column < width, rest a multiple of both."""

    rest: Index
    row: Index
    column: Index
    height: int
    width: int

    @property
    def turned(self) -> Index:
        return self.rest + self.column * self.height + self.row


def turn_operands(graph: NodeGraph) -> None:
    for node in list(graph.nodes):
        if isinstance(node, Map | Reduce | Scan):
            _turn(graph, node)


def _turn(graph: NodeGraph, node: Map | Reduce | Scan) -> None:
    lane = _lane(node)
    if lane is None or (lane.extent.constant or 0) < LEAST_LANES:
        return
    ordered = node if isinstance(node, Scan) else replace(node, dims=(*(v for v in node.dims if v is not lane), lane))
    if isinstance(ordered, Map) and cross_loop(ordered, lane) is not None:
        if lane is not node.dims[-1]:
            graph.replace(node, ordered)
        return
    copies: dict[tuple[Buffer, int, int], Buffer] = {}
    loads: dict[Expr, Load] = {}
    for load in dict.fromkeys(ld for e in node.expressions() for ld in e.loads):
        place = _place(load, lane) if _is_read(load.buffer, _turns(node)) else None
        if place is not None:
            key = (load.buffer, place.height, place.width)
            copy = copies.setdefault(
                key, Buffer(f"{load.buffer.name}_turned", load.buffer.dtype, load.buffer.size, "temp")
            )
            loads[load] = Load(copy, place.turned)
    if loads:
        changed = map_expressions(ordered, lambda e: rewrite(e, loads.get))
        graph.expand(node, [*(_copy(node, *key, copy) for key, copy in copies.items()), changed])


def _lane(node: Map | Reduce | Scan) -> Var | None:
    """The loop that the lanes should run along: the one chosen if it is long, else that which stores side by side."""
    if isinstance(node, Scan):
        return node.step if _stores_along(node, node.step) else None
    chosen = vector_loop(node)
    if isinstance(node, Reduce) and any(f.op in SCALAR_FOLDS for f in node.folds):
        return None
    if isinstance(node, Reduce) and (product(v.extent for v in node.rdims).constant or 0) > MOST_FOLDED:
        return None
    if chosen is None or (chosen not in node.dims and (chosen.extent.constant or LEAST_LANES) < LEAST_LANES):
        return next((v for v in reversed(node.dims) if _stores_along(node, v)), None)
    return chosen if chosen in node.dims else None


def _stores_along(node: Map | Reduce | Scan, loop: Var) -> bool:
    return all(s.index.coefficient(loop) == ONE for s in node.stores)


def _turns(node: Map | Reduce | Scan) -> float:
    inner = (node.step,) if isinstance(node, Scan) else node.rdims if isinstance(node, Reduce) else ()
    return product(v.extent for v in (*node.dims, *inner)).constant or 0


def _is_read(buffer: Buffer, turns: float) -> bool:
    """Whether a copy of a buffer pays."""
    size = buffer.size.constant
    if size is None or buffer.kind == "const":
        return False
    return size * DTYPES[buffer.dtype].size >= LEAST_BYTES and turns >= LEAST_READS * size


def _place(load: Load, lane: Var) -> _Place | None:
    """Where a load reads, as rows and columns of which the lane moves along the rows; None where it does not."""
    index, size = load.index, load.buffer.size.constant
    terms = sorted((Index({m: c}) for m, c in index.terms.items() if m), key=_step)
    moving = [i for i, t in enumerate(terms) if depends(t, lane)]
    if not moving or index.sizes() or size is None:
        return None
    for begin in range(1, moving[0] + 1):
        found = _split(terms, begin, moving[-1], index.terms.get((), 0), size)
        if found is not None:
            return found
    return None


def _split(terms: Sequence[Index], begin: int, moving: int, offset: int, size: int) -> _Place | None:
    """The place of which the first terms, up to `begin`, are the column, and those up to `moving` at least the row."""
    width = math.gcd(*map(_step, terms[begin:]))
    column, first = _sum(terms[:begin]) + offset % width, offset // width * width
    if width < LEAST_STEP or not _within(column, width) or _step(terms[0]) != 1:
        return None
    for end in range(moving + 1, len(terms) + 1):
        height = (math.gcd(*map(_step, terms[end:])) if terms[end:] else size) // width
        whole = max(first, 0) // (width * height) * width * height
        row = _divided(_sum(terms[begin:end]) + (first - whole), width)
        if size % (width * height) == 0 and _within(row, height):
            return _Place(_sum(terms[end:]) + whole, row, column, height, width)
    return None


def _step(term: Index) -> int:
    (factor,) = term.terms.values()
    return abs(factor)


def _sum(terms: Iterable[Index]) -> Index:
    return sum(terms, as_index(0))


def _divided(index: Index, width: int) -> Index:
    return Index({m: c // width for m, c in index.terms.items()})


def _within(index: Index, end: int) -> bool:
    top = largest(index)
    return index.nonnegative() and top is not None and top < end


def _copy(node: Map | Reduce | Scan, buffer: Buffer, height: int, width: int, copy: Buffer) -> Map:
    """The kernel that turns an operand, matrix by matrix."""
    size = buffer.size.constant
    assert size is not None
    matrix, column, row = (
        Var(name, as_index(extent))
        for name, extent in (("matrix", size // (height * width)), ("column", width), ("row", height))
    )
    start = of(matrix) * (height * width)
    value = Load(buffer, start + of(row) * width + of(column))
    stores = (Store(copy, start + of(column) * height + of(row), value),)
    return Map((matrix, column, row), stores, node.origin)
