"""Layout transform of operands: one that is strided along the lanes is transposed first, where the kernel has no tiles.

                                                           for o, s:S, a:A  t[o*S*A + s*A + a] = x[o*S*A + a*S + s]
y[j, k] = 0 <= k - 1 < A ? x[(k - 1)*S + j] : 0    ->      y[j, k] = 0 <= k - 1 < A ? t[j*A + k - 1] : 0

Lanes that each load another line of memory take ten times as long as a transposition by tiles and contiguous loads.
Plain maps transpose within their tiles (loops.cross_loop). The sizes of the matrices must be static; their number may
be dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...ir.bounds import largest
from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import (
    ONE,
    Index,
    Var,
    as_index,
    exact_div,
    of,
    product,
)
from ...ir.lanes import depends
from ...ir.nodes import Map, Nest, Reduce, Scan, Store
from ...ir.program import AnyNode
from ...ir.rewrite import cache_read, reorder
from ...machine.cpu_loops import TRANSPOSES
from ..cost.estimates import number
from ..graph import NodeGraph
from .vector_axis import cross_loop, keeps_indices, vector_loop


@dataclass(frozen=True)
class _Place:
    """An index rest + row*width + column with 0 <= row < height and 0 <= column < width, rest a multiple of both."""

    rest: Index
    row: Index
    column: Index
    height: int
    width: int

    @property
    def transposed(self) -> Index:
        return self.rest + self.column * self.height + self.row


Stage = Map | Reduce | Scan
S = TypeVar("S", bound=Stage)


def transpose_operands(graph: NodeGraph) -> None:
    """Puts kernels that turn operands in front of those that would read them across their lanes."""
    for node in list(graph.nodes):
        copies = _Copies(graph, node)
        if isinstance(node, Nest):
            stages = tuple(_with_transposed(stage, copies) if _is_kept(stage) else stage for stage in node.stages)
            changed: AnyNode = replace(node, stages=stages)
        elif isinstance(node, Map | Reduce | Scan):
            changed = _with_transposed(_ordered(node), copies)
        if copies.buffers:
            graph.replace_by(node, [*(_copy(node, *key, copy) for key, copy in copies.buffers.items()), changed])
        elif isinstance(node, Map) and _crosses(_ordered(node)) and not _crosses(node):
            graph.replace(node, _ordered(node))  # its tiles turn the operand


@dataclass
class _Copies:
    """The transposed buffers of a kernel, by what they are copies of: a buffer and the height and width of its
    matrices."""

    graph: NodeGraph
    node: AnyNode
    buffers: dict[tuple[Buffer, int, int], Buffer] = field(default_factory=dict)

    def before(self, buffer: Buffer) -> bool:
        """Whether it is there before the kernel begins."""
        return buffer.kind != "local" and buffer not in self.node.writes()

    def of(self, buffer: Buffer, place: _Place) -> Buffer:
        key = (buffer, place.height, place.width)
        if key not in self.buffers:
            number = len(self.buffers) or ""
            name = self.graph.free_name(f"{self.node.writes()[0].name}_transposed{number}")
            self.buffers[key] = Buffer(name, buffer.dtype, buffer.size, "temp")
        return self.buffers[key]


def _with_transposed(node: S, copies: _Copies) -> S:
    """The node with what it reads across its lanes read from copies."""
    lane = _lane(node)
    if (
        lane is None
        or (lane.extent.constant or 0) < TRANSPOSES.copied_lanes
        or (isinstance(node, Map) and _crosses(node))
    ):
        return node
    loads: dict[Load, Load] = {}
    given = [ld for ld in dict.fromkeys(ld for e in node.expressions() for ld in e.loads) if copies.before(ld.buffer)]
    for load in given:
        times = sum(ld.buffer is load.buffer for ld in given)
        place = _place(load, lane) if _is_read(load.buffer, node, times) else None
        interleaved = isinstance(node, Map) and load.index.coefficient(lane) is not None
        if (
            place is not None
            and _kept(place.column, node)
            and not (interleaved and place.width < TRANSPOSES.interleaved)
        ):
            loads[load] = Load(copies.of(load.buffer, place), place.transposed)
    return cache_read(node, loads)


def _kept(column: Index, node: Stage) -> bool:
    """Whether the columns are not those of a short row alone, which is reduced or interleaved as it lies."""
    row = node.rdims if isinstance(node, Reduce) else node.dims[-1:] if isinstance(node, Map) else ()
    return bool(column.vars() - set(row))


def _is_kept(stage: Map | Reduce) -> bool:
    """A stage of a nest keeps the order of its loops."""
    return _ordered(stage) is stage


def _ordered(node: S) -> S:
    """The node with the loop that stores side by side last, where the lanes have no better one."""
    if isinstance(node, Scan) or (isinstance(node, Reduce) and keeps_indices(node)):
        return node
    chosen = vector_loop(node)
    if chosen in node.dims or (
        chosen is not None and (chosen.extent.constant or TRANSPOSES.copied_lanes) >= TRANSPOSES.copied_lanes
    ):
        return node
    dense = next((v for v in reversed(node.dims) if _steps(node, v) == {ONE}), None)
    if dense is None or dense is node.dims[-1]:
        return node
    return reorder(node, (*(v for v in node.dims if v is not dense), dense))


def _lane(node: Stage) -> Var | None:
    """The loop that the lanes run along, or that is interleaved from vectors of it."""
    if isinstance(node, Scan):
        return node.step if _steps(node, node.step) == {ONE} else None
    if not node.dims or (isinstance(node, Reduce) and keeps_indices(node)):
        return None
    last, chosen = node.dims[-1], vector_loop(node)
    if (
        isinstance(node, Map)
        and chosen is last
        and (last.extent.constant or TRANSPOSES.copied_lanes) < TRANSPOSES.copied_lanes
    ):
        return next((v for v in node.dims if _steps(node, v) == {last.extent}), None)
    reductions = isinstance(node, Reduce) and chosen in node.rdims
    if (
        reductions
        and chosen is not None
        and (chosen.extent.constant or TRANSPOSES.copied_lanes) >= TRANSPOSES.copied_lanes
    ):
        return None
    return last if _steps(node, last) == {ONE} else None


def _steps(node: Stage, loop: Var) -> set[Index | None]:
    return {s.index.coefficient(loop) for s in node.stores}


def _crosses(node: Map) -> bool:
    lane = vector_loop(node)
    return lane is not None and cross_loop(node, lane) is not None


def _is_read(buffer: Buffer, node: Stage, times: int) -> bool:
    """Whether a copy of a buffer pays that so many loads read."""
    inner = (node.step,) if isinstance(node, Scan) else node.rdims if isinstance(node, Reduce) else ()
    results, reduced = (number(product(v.extent for v in loops)) for loops in (node.dims, inner))
    size = number(buffer.size)
    if buffer.kind == "const" or size * DTYPES[buffer.dtype].size < TRANSPOSES.copied_bytes:
        return False
    kept = results * reduced if isinstance(node, Scan) else results
    return results * reduced * times >= TRANSPOSES.reads * size and kept >= TRANSPOSES.results * size


def _place(load: Load, lane: Var) -> _Place | None:
    """Where a load reads, as rows and columns of which the lane moves along the rows; None where it does not."""
    index, size = load.index, load.buffer.size
    terms = sorted((Index({m: c}) for m, c in index.terms.items() if m), key=_step)
    moving = [i for i, t in enumerate(terms) if depends(t, lane)]
    if not moving or index.sizes():
        return None
    for begin in range(1, moving[0] + 1):
        found = _split(terms, begin, moving[-1], index.terms.get((), 0), size)
        if found is not None and _step(terms[moving[0]]) <= TRANSPOSES.strides * found.width:
            return found
    return None


def _split(terms: Sequence[Index], begin: int, moving: int, offset: int, size: Index) -> _Place | None:
    """The place of which the first terms, up to `begin`, are the column, and those up to `moving` at least the row."""
    width = math.gcd(*map(_step, terms[begin:]))
    column, first = _sum(terms[:begin]) + offset % width, offset // width * width
    if width < TRANSPOSES.copied_step or not _within(column, width) or _step(terms[0]) != 1:
        return None
    for end in range(moving + 1, len(terms) + 1):
        height = (math.gcd(*map(_step, terms[end:])) if terms[end:] else size.constant or 0) // width
        if height == 0 or exact_div(size, as_index(width * height)) is None:
            continue
        whole = max(first, 0) // (width * height) * width * height
        row = _divided(_sum(terms[begin:end]) + (first - whole), width)
        if _within(row, height):
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


def _copy(node: AnyNode, buffer: Buffer, height: int, width: int, copy: Buffer) -> Map:
    """The kernel that turns an operand, matrix by matrix."""
    count = exact_div(buffer.size, as_index(height * width))
    assert count is not None
    matrix, column, row = Var("matrix", count), Var("column", as_index(width)), Var("row", as_index(height))
    start = of(matrix) * (height * width)
    value = Load(buffer, start + of(row) * width + of(column))
    stores = (Store(copy, start + of(column) * height + of(row), value),)
    return Map((matrix, column, row), stores, node.origin)
