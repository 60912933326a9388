"""The bytes that a kernel reads and writes: each element that it touches once, whatever the caches do.

What counts is the elements, not the buffers: an embedding reads the rows that it looks up, a slice reads the slice, a
broadcast operand is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...ir.buffers import Buffer, Operand
from ...ir.dtypes import DTYPES
from ...ir.index import ONE, ZERO, Index, as_index, product
from ...ir.nodes import Nest, Node, Scatter
from ...ir.structured import Attention, AttentionGradient, Conv, ConvChain, Gemm

Access = tuple[Buffer, str, Index]  # buffer, where in it (text), elements


@dataclass(frozen=True)
class Traffic:
    """Bytes, as formulas over the sizes. read: of all operands, `weights` of them constants of the model."""

    read: Index
    weights: Index
    written: Index

    @property
    def total(self) -> Index:
        return self.read + self.written


def traffic(node: Node) -> Traffic:
    """What a scheduled node reads and writes."""
    written = _by_buffer(_stores(node))
    own = set(node.writes()) | (set(node.locals) if isinstance(node, (Nest, ConvChain)) else set())
    read = {b: n for b, n in _by_buffer(_reads(node)).items() if b not in own}
    weights = {b: n for b, n in read.items() if b.kind == "const"}
    return Traffic(_bytes(read), _bytes(weights), _bytes(written))


def _reads(node: Node) -> Iterator[Access]:
    if isinstance(node, ConvChain):
        for link in node.links:
            yield from _reads(link)
        return
    match node:
        case Gemm():
            *batch, m, n = (v.extent for v in node.dims)
            if node.quantised is not None and node.quantised.patches is not None:
                yield node.a.buffer, str(node.a.offset), node.a.buffer.size
            else:
                yield _operand(node.a, [*batch, m, node.k])
            for right in (node.b, *(other for other, _ in node.also)):
                if node.quantised is not None:
                    yield right.buffer, str(right.offset), right.buffer.size
                    yield from ((b, "", b.size) for b in node.quantised.buffers)
                elif node.packed:
                    yield right.buffer, str(right.offset), product((*(batch if right.strides else ()), n, node.k))
                else:
                    yield _operand(right, [*batch, node.k, n])
        case Conv():
            yield _operand(Operand(node.x.buffer, node.x.offset, (*node.x.strides, ONE)), node.in_shape)
            yield node.w, str(node.w_offset), node.w.size
        case Attention():
            b, h, m, d = (v.extent for v in node.dims)
            yield _operand(node.q, [b, h, m], node.head_size)
            for side, rest, size in ((node.k, node.k_rest, node.head_size), (node.v, node.v_rest, d)):
                first = node.keys if rest is None else rest.first
                yield _operand(side, [b, node.kv_heads, first], size)
                if rest is not None:
                    yield _operand(rest.operand, [b, node.kv_heads, node.keys - first], size)
            if node.sink is not None:
                yield _operand(node.sink, [b, h], m)
            for pages, side, size in ((node.k_pages, node.k, node.head_size), (node.v_pages, node.v, d)):
                if pages is not None:  # each text has blocks of its own, although no stride leads from one to the other
                    yield side.buffer, "blocks", (b - 1) * node.kv_heads * node.keys * size
                    yield _operand(pages.table, [b, (node.keys + pages.rows - 1) // pages.rows])
        case AttentionGradient():
            b, h, m, d = (v.extent for v in node.dims)
            rows, keys, size = [b, h, m], [b, node.kv_heads, node.keys], node.head_size
            for side, extents, width in (
                (node.q, rows, size),
                (node.k, keys, size),
                (node.v, keys, d),
                (node.grad, rows, d),
            ):
                yield _operand(side, extents, width)
            for side in node.operands[4:]:
                yield _operand(side, [b, h], m)
    for expression in node.expressions():
        for load in expression.loads:
            yield load.buffer, str(load.index), elements(load.index)
    if not isinstance(node, (Gemm, Conv, Attention, AttentionGradient)):
        loaded = {load.buffer for e in node.expressions() for load in e.loads}
        for buffer in node.reads():
            if buffer not in loaded:  # an operand of a kind of node that is not listed above: as a whole
                yield buffer, "", buffer.size


def _stores(node: Node) -> Iterator[Access]:
    if isinstance(node, Attention):
        yield _operand(node.out, [v.extent for v in node.dims[:3]], node.dims[3].extent)
        for side in (node.logsumexp, node.top):
            if side is not None:
                yield _operand(side, [v.extent for v in node.dims[:2]], node.dims[2].extent)
        return
    if isinstance(node, AttentionGradient):
        b, h, m, d = (v.extent for v in node.dims)
        yield _operand(node.of_q, [b, h, m], node.head_size)
        yield _operand(node.of_k, [b, node.kv_heads, node.keys], node.head_size)
        yield _operand(node.of_v, [b, node.kv_heads, node.keys], d)
        return
    if isinstance(node, Scatter):
        for update in node.updates:
            if update.buffer.of is not None:  # written in place: nothing else of it is touched
                yield update.buffer, str(update.index), product(v.extent for v in node.udims)
    nodes: Sequence[Node] = node.stages if isinstance(node, Nest) else (node,)
    kept = node.locals if isinstance(node, Nest) else ()
    for part in nodes:
        for store in part.stores:
            if store.buffer not in kept:
                yield store.buffer, str(store.index), elements(store.index)


def _operand(o: Operand, extents: Sequence[Index], dense: Index = ONE) -> Access:
    """A strided operand: a loop with stride 0 reads nothing new."""
    count = product(e for e, stride in zip(extents, o.strides, strict=False) if stride != ZERO)
    return o.buffer, str(o.offset), count * dense


def elements(index: Index) -> Index:
    """How many elements an index can name: the loops that it depends on, in all their combinations."""
    return product(v.extent for v in sorted(index.vars(), key=lambda v: v.key))


def _by_buffer(accesses: Iterable[Access]) -> dict[Buffer, Index]:
    """Elements by buffer. What is accessed twice at one place counts once; more than there is cannot be."""
    places: dict[Buffer, dict[str, Index]] = {}
    for buffer, where, count in accesses:
        places.setdefault(buffer, {}).setdefault(where, count)
    return {b: _at_most(sum(counts.values(), ZERO), b.size) for b, counts in places.items()}


def _at_most(count: Index, size: Index) -> Index:
    if count.constant is not None and size.constant is not None:
        return as_index(min(count.constant, size.constant))
    return size if (count - size).nonnegative() else count


def _bytes(counts: dict[Buffer, Index]) -> Index:
    return sum((n * DTYPES[b.dtype].size for b, n in counts.items()), ZERO)
