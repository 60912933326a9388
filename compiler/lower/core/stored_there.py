"""New values of memory that are computed where they are to lie.

    map[i] m1[i] = f(m[i], g[i])                       map[i] m'[i] = f(m[i], g[i])        m': the later value of m
    map[i] p1[i] = p[i] - m1[i]              ->        map[i] p1[i] = p[i] - m'[i]
    map[i] m'[i] = m1[i]

A temporary takes the name of the memory's later value where nothing reads the value before behind the node that makes
it, and that node reads it at the elements that it writes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.in_place import over_own_elements
from ...ir.nodes import Map
from ...ir.program import AnyNode
from .builder import Builder
from .in_place import memory_read
from .tensor import Strided, Tensor, is_dense

__all__ = ["stored_there"]


def stored_there(
    builder: Builder, targets: Sequence[tuple[Buffer, Tensor]], results: Sequence[Tensor]
) -> tuple[dict[Buffer, Buffer], list[tuple[Buffer, Tensor]]]:
    """Which temporaries become later values of memory, and the targets with them.

    Args:
        targets: memory and its value after the call.
        results: of the call, which have memory of their own.
    """
    if not targets:
        return {}, []
    readers, writers = _accesses(builder.nodes)
    sources = Counter(_temporary(t) for _, t in (*targets, *((None, t) for t in results)))
    read = [memory_read(builder, t) for t in (*(t for _, t in targets), *results)]
    times_read = Counter(root for roots in read for root in roots)
    names: dict[Buffer, Buffer] = {}
    found = []
    for (root, t), own in zip(targets, read, strict=False):
        source = _temporary(t)
        if (
            source is not None
            and sources[source] == 1
            and builder.latest(root) is root
            and source.dtype == root.dtype
            and source.size == root.size
            and times_read[root] == (root in own)
            and _may_write(builder.nodes, readers, writers, source, root)
        ):
            names[source] = builder.later(root)
            assert t.strided is not None
            t = replace(t, strided=Strided(names[source], t.strided.strides, t.strided.offset))
        found.append((root, t))
    return names, found


def _temporary(t: Tensor) -> Buffer | None:
    """The buffer that a tensor is the whole of."""
    source = t.strided.buffer if t.strided is not None else None
    return source if source is not None and source.kind == "temp" and is_dense(t) else None


def _accesses(nodes: Sequence[AnyNode]) -> tuple[dict[Buffer, list[int]], dict[Buffer, list[int]]]:
    """The positions of the nodes that read each buffer, and of those that write it."""
    readers: dict[Buffer, list[int]] = {}
    writers: dict[Buffer, list[int]] = {}
    for position, node in enumerate(nodes):
        for buffer in set(node.reads()):
            readers.setdefault(buffer, []).append(position)
        for buffer in set(node.writes()):
            writers.setdefault(buffer, []).append(position)
    return readers, writers


def _may_write(
    nodes: Sequence[AnyNode],
    readers: dict[Buffer, list[int]],
    writers: dict[Buffer, list[int]],
    source: Buffer,
    root: Buffer,
) -> bool:
    """Whether the one node that makes the temporary may write over the memory instead."""
    if len(writers.get(source, ())) != 1:
        return False
    (position,) = writers[source]
    node = nodes[position]
    if not isinstance(node, Map) or any(reader > position for reader in readers.get(root, ())):
        return False
    later = Buffer(root.name, root.dtype, root.size, root.kind, root.slot, root)
    stores = tuple(replace(s, buffer=later) if s.buffer is source else s for s in node.stores)
    return over_own_elements(replace(node, stores=stores))
