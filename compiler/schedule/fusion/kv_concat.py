"""Elimination of the KV cache's concatenation: attention reads both parts in place.

    t[n, d]     = past[n, d]     n:a
    t[a + n, d] = new[n, d]      n:b          ->      y = attention(q, past then new from a on, ..)
    y = attention(q, t, ..)

A decoding step appends one row to a cache of many rows; a copy would read and write the whole cache for it. Values that
were computed into `t` are computed into a buffer of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Load
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    Var,
    exact_div,
    of,
    product,
)
from ...ir.nodes import Map, Store
from ...ir.program import AnyNode
from ...ir.structured import Attention, Rest
from ..graph import NodeGraph, label, loads_of
from ..remarks import Remarks
from .concat_distribution import linear

KEYS = 2  # of the axes (batch, heads, keys, size)
SIDES = ("k", "v")


def eliminate_kv_concats(graph: NodeGraph, remarks: Remarks) -> None:
    """Has attention read concatenations of two parts along the keys from the parts."""
    for node in [n for n in graph.nodes if isinstance(n, Attention)]:
        for side in SIDES:
            node = _apart(graph, remarks, node, side)


def _apart(graph: NodeGraph, remarks: Remarks, node: Attention, side: str) -> Attention:
    """The node that stands in the graph afterwards."""
    operand: Operand = getattr(node, side)
    writers = graph.writers(operand.buffer)
    pieces = [w for w in writers if isinstance(w, Map) and len(w.stores) == 1]
    if len(pieces) != 2 or len(writers) != 2 or not _read_here_alone(graph, node, operand.buffer):
        return node
    size = node.head_size if side == "k" else node.dims[3].extent
    extents = (node.dims[0].extent, node.kv_heads, node.keys, size)
    parts = [part for piece in pieces if (part := _part(piece, operand, extents)) is not None]
    parts.sort(key=lambda part: part.first != ZERO)
    if len(parts) != 2 or parts[0].first != ZERO or parts[1].first != parts[0].count:
        return node
    places = [_as_it_lies(graph, part, node) for part in parts]
    if places == [None, None]:
        for piece in pieces:
            remarks.refused(label(piece), label(node), "both parts of a concatenation are computed")
        return node
    operands = []
    for part, place in zip(parts, places, strict=True):
        if place is None:
            operands.append(_moved(graph, part, extents))
        else:
            remarks.fused(label(part.piece), label(node), "read where it lies, one part after the other")
            graph.remove(part.piece)
            operands.append(place)
    changes: dict[str, Any] = {side: operands[0], f"{side}_rest": Rest(parts[1].first, operands[1])}
    changed = replace(node, **changes)
    graph.replace(node, changed)
    return changed


def _read_here_alone(graph: NodeGraph, node: Attention, buffer: Buffer) -> bool:
    """Whether nothing but one operand of the attention reads a buffer."""
    readers: list[AnyNode] = graph.readers(buffer)
    uses = sum(o.buffer is buffer for o in node.operands)
    return buffer.kind == "temp" and readers == [node] and uses == 1 and not loads_of(node, buffer)


@dataclass(frozen=True)
class _Part:
    """A piece of a concatenation: its keys, and the loops over the axes along which it has several elements."""

    piece: Map
    first: Index
    count: Index
    loops: dict[int, Var]


def _part(piece: Map, operand: Operand, extents: Sequence[Index]) -> _Part | None:
    """None: the piece does not run over whole rows of some of the keys."""
    store = linear(piece.stores[0].index, piece.dims)
    first = exact_div(store.offset - operand.offset, operand.strides[KEYS]) if store is not None else None
    if store is None or first is None:
        return None
    steps = (*operand.strides, ONE)
    free = [
        a for a, (e, step) in enumerate(zip(extents, steps, strict=True)) if a == KEYS or (e != ONE and step != ZERO)
    ]
    loops: dict[int, Var] = {}
    for v, stride in store.strides.items():
        fitting = [a for a in free if steps[a] == stride and (a == KEYS or extents[a] == v.extent)]
        if not fitting:
            return None
        loops[fitting[0]] = v
        free.remove(fitting[0])
    if not set(free) <= {KEYS}:
        return None
    return _Part(piece, first, loops[KEYS].extent if KEYS in loops else ONE, loops)


def _as_it_lies(graph: NodeGraph, part: _Part, node: Attention) -> Operand | None:
    """Where the part's elements lie before they are copied; None: they are computed, or written over before the
    attention, or not dense."""
    load = part.piece.stores[0].value
    place = linear(load.index, part.piece.dims) if isinstance(load, Load) else None
    if not isinstance(load, Load) or place is None or graph.crosses((load.buffer,), part.piece, node):
        return None
    if load.buffer.dtype != part.piece.stores[0].buffer.dtype:
        return None
    *strides, step = (place.strides[part.loops[a]] if a in part.loops else ZERO for a in range(KEYS + 2))
    return Operand(load.buffer, place.offset, tuple(strides)) if step == ONE or KEYS + 1 not in part.loops else None


def _moved(graph: NodeGraph, part: _Part, extents: Sequence[Index]) -> Operand:
    """Has the part written into memory of its own."""
    (store,) = part.piece.stores
    sizes = [part.count if a == KEYS else e if a in part.loops else ONE for a, e in enumerate(extents)]
    strides = [product(sizes[a + 1 :]) if a in part.loops else ZERO for a in range(len(sizes))]
    index = sum((of(v) * strides[a] for a, v in part.loops.items()), ZERO)
    buffer = Buffer(
        f"{store.buffer.name}_{'rest' if part.first != ZERO else 'first'}", store.buffer.dtype, product(sizes), "temp"
    )
    graph.replace(part.piece, replace(part.piece, stores=(Store(buffer, index, store.value),)))
    return Operand(buffer, ZERO, tuple(strides[:-1]))
