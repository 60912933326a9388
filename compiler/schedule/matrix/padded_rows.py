"""Padded rows: the rows of a buffer that a product reads or makes begin at multiples of 16 bytes, as its loads and
stores want them.

    y[m*50257 + n] = f(x[m, n])                 y[m*50264 + n] = f(x[m, n])
    gemm  a = y, strides (50257, 1)      ->     gemm  a = y, strides (50264, 1)

Law: every place in the buffer is row * width + column with 0 <= column < width, so that places stay apart, and nobody
reads what lies behind the columns of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from ...ir.bounds import largest
from ...ir.buffers import Buffer, Operand
from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load, rewrite
from ...ir.index import ONE, ZERO, Index, Var, as_index, exact_div, of, product
from ...ir.nodes import Map, Nest, Node, Reduce, Store
from ...ir.program import AnyNode
from ...ir.proofs import nonnegative_by_cases
from ...ir.rewrite import map_expressions, substituted
from ...ir.structured import Gemm
from ...machine.gpu import ACCESS, Device
from ..graph import NodeGraph, label
from ..remarks import Remarks

N = TypeVar("N", bound=Node)


def pad_rows(graph: NodeGraph, remarks: Remarks, device: Device) -> None:
    """Pads the rows of every buffer that products read at places that are not aligned."""
    for gemm in [n for n in graph.nodes if isinstance(n, Gemm) and n.quantised is None]:
        for operand in (gemm.a, gemm.b):
            buffer, width = operand.buffer, _unaligned(operand.buffer, operand.strides, device)
            if width and buffer.kind == "temp" and _pad(graph, buffer, width):
                remarks.fused(label(gemm), buffer.name, "rows begin at multiples of 16 bytes")
    for gemm in [n for n in graph.nodes if isinstance(n, Gemm)]:
        for store in gemm.stores:
            strides = [store.index.coefficient(v) for v in gemm.dims[-2:]]
            known = [s for s in strides if s is not None]
            plain = len(known) == len(gemm.dims) == 2
            width = _unaligned(store.buffer, known, device) if plain else 0
            if width == gemm.dims[-1].extent.constant and store.buffer.kind == "temp":
                _pad(graph, store.buffer, width)
    for node in [n for n in graph.nodes if isinstance(n, Map)]:
        whole = _with_padding(node, device)
        if whole is not None:
            graph.replace(node, whole)


def _with_padding(node: Map, device: Device) -> Map | None:
    """A map over padded rows that makes what lies between them, too: it is one run of memory then, and nobody reads
    what it makes there of what was there. None where it has other rows, or reads what has no such places."""
    if len(node.dims) < 2:
        return None
    *rows, column = node.dims
    width = column.extent.constant
    if width is None or any(s.buffer.kind != "temp" for s in node.stores):
        return None
    along = [ld for s in node.stores for ld in s.value.loads if column in ld.vars()]
    wide = {_wide(i.index, rows[-1], column) for i in (*along, *node.stores)}
    (stride, *others) = wide
    if others or stride is None or not width < stride < width + _unit(node.stores[0].buffer):
        return None
    extents = [v.extent for v in rows]
    sizes = {as_index(stride) * product(extents), *(i.buffer.size for i in (*along, *node.stores))}
    if len(sizes) > 1 or any(_starts(i.index, node.dims) for i in (*along, *node.stores)):
        return None
    longer = Var(column.name, as_index(stride))
    return replace(substituted(node, {column: of(longer)}), dims=(*rows, longer))


def _wide(index: Index, row: Var, column: Var) -> int | None:
    """How far apart neighbouring rows lie, where the elements of one lie side by side."""
    step = index.coefficient(row)
    return step.constant if step is not None and index.coefficient(column) == ONE else None


def _starts(index: Index, loops: Sequence[Var]) -> bool:
    """Whether a place is no plain sum of loops, or has an offset."""
    return index.substitute(dict.fromkeys(loops, ZERO)) != ZERO or any(not isinstance(a, Var) for a in index.atoms())


def _unaligned(buffer: Buffer, strides: Sequence[Index], device: Device) -> int:
    """The width of rows with these strides where they do not begin at multiples of what a load takes; else 0."""
    unit = _unit(buffer)
    known = [s.constant for s in strides[-2:]]
    width = next((s for s in known if s is not None and s != 1), 0)
    return width if 1 in known and width % unit and width >= device.products.padded else 0


def _unit(buffer: Buffer) -> int:
    return ACCESS // DTYPES[buffer.dtype].size


def _pad(graph: NodeGraph, buffer: Buffer, width: int) -> bool:
    """Gives a buffer wider rows; False where a node has another view of it."""
    rows = exact_div(buffer.size, Index({(): width}))
    users = list(dict.fromkeys((*graph.writers(buffer), *graph.readers(buffer))))
    if rows is None or buffer.of is not None:
        return False
    padding = _Padding(buffer, width, -(-width // _unit(buffer)) * _unit(buffer), rows)
    changed = [padding.node(user) for user in users]
    if any(node is None for node in changed):
        return False
    for user, node in zip(users, changed, strict=True):
        assert node is not None
        graph.replace(user, node)
    return True


class _Padding:
    """The change of one buffer."""

    def __init__(self, old: Buffer, width: int, wide: int, rows: Index):
        self.old, self.width, self.wide = old, width, wide
        self.new = Buffer(old.name, old.dtype, rows * wide, old.kind)

    def node(self, node: AnyNode) -> AnyNode | None:
        """A node with the buffer's new places; None where one of them is not known to be in a row."""
        if not isinstance(node, Map | Reduce | Nest | Gemm) or not all(map(self._holds, self._places(node))):
            return None
        changed = _with_stores(map_expressions(node, lambda e: rewrite(e, self._load)), self._store)
        if not isinstance(changed, Gemm):
            return changed
        return replace(
            changed, a=self._operand(changed.a), b=self._operand(changed.b),
            also=tuple((self._operand(b), acc) for b, acc in changed.also),
        )  # fmt: skip

    def _places(self, node: Map | Reduce | Nest | Gemm) -> Iterator[Index]:
        yield from (ld.index for e in node.expressions() for ld in e.loads if ld.buffer is self.old)
        stages: Sequence[Map | Reduce | Gemm] = node.stages if isinstance(node, Nest) else (node,)
        yield from (s.index for stage in stages for s in stage.stores if s.buffer is self.old)
        if isinstance(node, Gemm):
            *batch, m, n = node.dims
            depth = Var("depth", node.k)
            weights = (node.b, *(b for b, _ in node.also))
            for operand, loops in ((node.a, (*batch, m, depth)), *((b, (*batch, depth, n)) for b in weights)):
                if operand.buffer is self.old:
                    pairs = zip(loops, operand.strides, strict=True)
                    yield sum((of(v) * s for v, s in pairs), operand.offset)

    def _holds(self, index: Index) -> bool:
        """Whether what is no multiple of the width is a column."""
        column = self._parts(index)[1]
        last = largest(column)
        return last is not None and last < self.width and nonnegative_by_cases(column)

    def _parts(self, index: Index) -> tuple[Index, Index]:
        """Row and column of a place."""
        row, column = ZERO, ZERO
        for monomial, c in index.terms.items():
            times, rest = divmod(c, self.width) if not monomial or c % self.width == 0 else (0, c)
            row, column = row + Index({monomial: times}), column + Index({monomial: rest})
        return row, column

    def _moved(self, index: Index) -> Index:
        row, column = self._parts(index)
        return row * self.wide + column

    def _load(self, e: Expr) -> Expr | None:
        return Load(self.new, self._moved(e.index)) if isinstance(e, Load) and e.buffer is self.old else None

    def _store(self, s: Store) -> Store:
        return Store(self.new, self._moved(s.index), s.value) if s.buffer is self.old else s

    def _operand(self, o: Operand) -> Operand:
        if o.buffer is not self.old:
            return o
        return Operand(self.new, self._moved(o.offset), tuple(map(self._moved, o.strides)))


def _with_stores(node: N, change: Callable[[Store], Store]) -> N:
    """The node with its stores, or those of its stages, changed."""
    changed: Node = replace(node, stores=tuple(map(change, node.stores)))
    if isinstance(changed, Nest):
        changed = replace(changed, stages=tuple(_with_stores(stage, change) for stage in changed.stages))
    return changed  # type: ignore[return-value]
