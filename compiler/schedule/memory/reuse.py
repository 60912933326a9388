"""Results in the memory of a value that they are added to: `y[i] = acc + r[i]` stores over r when nobody needs r again.

A result that has memory of its own is fetched before it is written, and the value beside it is fetched too; written
over it, only one of the two moves through the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.buffers import Buffer
from ...ir.index import Indirect
from ...ir.nodes import Map, Store
from ...ir.program import AnyNode
from ...ir.structured import Conv, Gemm
from ..graph import loads_of, operand_buffers


def results_over_operands(nodes: Sequence[AnyNode], kept: Iterable[Buffer]) -> dict[Buffer, Buffer]:
    """Temporaries that may lie where another one lies, and which: the node that writes the one is the last that reads
    the other, each element just before it stores the same element.

    kept: temporaries that others than the nodes read.
    """
    kept = set(kept)
    last: dict[Buffer, int] = {}
    writers: dict[Buffer, int] = {}
    for i, node in enumerate(nodes):
        for buffer in (*node.reads(), *node.writes()):
            last[buffer] = i
        for buffer in node.writes():
            writers[buffer] = writers.get(buffer, 0) + 1
    over: dict[Buffer, Buffer] = {}
    for i, node in enumerate(nodes):
        if not isinstance(node, (Gemm, Conv, Map)):
            continue
        free = [b for b in node.reads() if last[b] == i and _plain(b) and b not in kept and b not in node.writes()]
        for store in node.stores:
            if not _plain(store.buffer) or writers[store.buffer] > 1 or _stores(node, store.buffer) > 1:
                continue
            found = next((b for b in free if same_elements(node, store, b)), None)
            if found is not None:
                over[store.buffer] = found
                free.remove(found)
    return over


def _plain(buffer: Buffer) -> bool:
    return buffer.kind == "temp" and buffer.of is None


def _stores(node: AnyNode, buffer: Buffer) -> int:
    return sum(s.buffer is buffer for s in node.stores)


def same_elements(node: AnyNode, store: Store, buffer: Buffer) -> bool:
    """Whether all that the node reads of `buffer` is the element that it stores at the same turn, and no store behind
    this one reads it again."""
    alike = buffer.dtype == store.buffer.dtype and buffer.size == store.buffer.size
    if not alike or buffer in operand_buffers(node):
        return False
    behind = node.stores[node.stores.index(store) + 1 :]
    if any(e.buffer is buffer for s in behind for e in s.value.loads):
        return False
    if any(isinstance(a, Indirect) for s in node.stores for a in s.index.atoms()):
        return False
    return all(load.index == store.index for load in loads_of(node, buffer))
