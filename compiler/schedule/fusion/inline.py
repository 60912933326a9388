"""Vertical fusion: a map is computed where it is read, instead of stored.

    t[i] = f(x[i])
    y[i] = g(t[i], z[i])      ->      y[i] = g(f(x[i]), z[i])

It applies when it costs less than the memory traffic that it saves: always for a single reader that reads each element
once, and for expressions that are cheap to recompute. Those are made again early where their operands stay in memory
anyway: a training step keeps x for its backward, and not x / 2 and x + 1 beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load, rewrite, substitute
from ...ir.in_place import over_own_elements, overwrites, shared_roots
from ...ir.index import ONE, Indirect, product
from ...ir.nodes import Map, Reduce, Scan, Scatter, Store
from ...ir.program import AnyNode
from ...ir.rewrite import map_expressions
from ...ir.structured import Attention, AttentionGradient, Conv, Gemm
from ...machine.cpu import STREAM
from ...machine.cpu_loops import WORK
from ...machine.gpu import Device
from ..cost.estimates import is_long, number, work
from ..graph import NodeGraph, label, loads_of, operand_buffers
from ..matrix.seen_keys import seen_keys
from ..remarks import Remarks
from .invert import invert


def inline_maps(graph: NodeGraph, remarks: Remarks, recompute: bool, device: Device | None = None) -> None:
    """Inlines every map that pays, producers before consumers.

    recompute=False: only into other maps, where no element is computed more often than before; what reads a product
    may become its epilogue then, and is not lost to the reduction behind it. device: the GPU; None: a CPU.
    """
    for buffer in [b for node in graph.nodes for b in node.writes() if b.kind == "temp"]:
        node = graph.producer(buffer)  # of now: it may have taken in others
        if not isinstance(node, Map) or len(node.stores) != 1:
            continue
        if not recompute and _finishes_as_bytes(graph, node, buffer):
            continue
        if recompute or all(isinstance(reader, Map) for reader in graph.readers(buffer)):
            again = recompute or _operands_stay(graph, node, buffer)
            _consider(graph, node, remarks, WORK.cheap if again else 0, device)


def _finishes_as_bytes(graph: NodeGraph, node: Map, buffer: Buffer) -> bool:
    """Whether a map makes bytes of what a product or a convolution makes for it alone: it becomes the epilogue of that
    one, which stores bytes then, and not of a later one that would read wider numbers from memory."""
    made = [b for b in node.reads() if b.kind == "temp" and isinstance(graph.producer(b), Gemm | Conv)]
    alone = len(made) == 1 and graph.readers(made[0]) == [node] and DTYPES[buffer.dtype].size == 1
    return alone and DTYPES[made[0].dtype].size > 1


def _operands_stay(graph: NodeGraph, node: Map, buffer: Buffer) -> bool:
    """Whether every reader may make an element of a map again for each of its own, from values that others need for
    as long as the map is read."""
    readers = graph.readers(buffer)
    if not readers or any(number(reader.extent) > number(node.extent) for reader in readers):
        return False
    last = max(map(graph.position, readers))
    others = [[r for r in graph.readers(b) if r is not node] for b in node.reads() if b.kind == "temp"]
    return all(any(graph.position(r) >= last for r in found) for found in others)


def _consider(graph: NodeGraph, node: Map, remarks: Remarks, budget: int, device: Device | None) -> None:
    store = node.stores[0]
    readers = list(graph.readers(store.buffer))
    if budget and _shows_keys(node, store, readers, device):
        budget = WORK.mask
    if budget and device is not None and _reads_no_more(node, store):
        facts, maps = device.fusions, len(readers) > 1 and all(isinstance(reader, Map) for reader in readers)
        budget = max(budget, facts.by_maps if maps else facts.recomputed)
    reason = _refusal(node, store, readers, budget) or _overwritten(graph, node, store, readers)
    for reader in readers:
        if reason:
            remarks.refused(label(node), label(reader), reason)
    if reason or not readers:
        return
    for reader in readers:
        graph.replace(reader, inlined(reader, node, store))
        remarks.fused(label(node), label(reader), "computed where it is read")
    graph.remove(node)


def _refusal(node: Map, store: Store, readers: list[AnyNode], budget: int) -> str:
    """Why the map must be stored; empty when it is to be inlined."""
    evaluations = 0
    own = number(node.extent)
    for reader in readers:
        if store.buffer in operand_buffers(reader):
            return "read as an operand of a matrix kernel, which takes memory"
        loads = loads_of(reader, store.buffer)
        if any(invert(store, node.dims, ld.index) is None for ld in loads):
            return "its elements are not written in one dense order"
        evaluations += len(loads) * _iterations(reader)
    cost = work(store.value)
    if cost > budget and evaluations > own:
        return f"would be computed {evaluations / max(own, 1):.3g} times, at {cost} operations each"
    return ""


def _reads_no_more(node: Map, store: Store) -> bool:
    """Whether an element takes no more bytes to compute again than to read: of operands that vary along all loops, as
    those that lack one are few and stay in caches. What is looked up is read once."""
    if any(isinstance(atom, Indirect) for ld in store.value.loads for atom in ld.index.atoms()):
        return False
    loops = {v for v in node.dims if v.extent != ONE}
    whole = {ld for ld in store.value.loads if loops <= ld.vars()}
    return sum(DTYPES[ld.dtype].size for ld in whole) <= DTYPES[store.buffer.dtype].size


def _shows_keys(node: Map, store: Store, readers: list[AnyNode], device: Device | None) -> bool:
    """Whether a map is a mask by whose comparisons attention leaves keys out (decision 0126), made of what is smaller.

    A CPU leaves out what a stored mask hides, too: there the mask has to be long.
    """
    elements = node.extent.constant
    if store.buffer.dtype != "bool" or (device is None and elements is not None and elements <= STREAM):
        return False
    smaller = all({v for v in node.dims if v.extent != ONE} - ld.vars() for ld in store.value.loads)
    kinds = Attention if device is None else (Attention, AttentionGradient)
    masked = all(isinstance(r, kinds) and _is_mask_of(store.buffer, r) for r in readers)
    made = [inlined(r, node, store) for r in readers] if smaller and masked else []
    return smaller and masked and all(isinstance(r, kinds) and seen_keys(r) for r in made)


def _is_mask_of(buffer: Buffer, node: AnyNode) -> bool:
    """Whether an attention reads a buffer for its scores alone."""
    assert isinstance(node, Attention | AttentionGradient)
    score, dropout = (() if e is None else e.loads for e in (node.score, node.dropout))
    return any(ld.buffer is buffer for ld in score) and not any(ld.buffer is buffer for ld in dropout)


def inline_lookups(graph: NodeGraph, remarks: Remarks, device: Device) -> None:
    """On a GPU: places that a map computes, and what else the node that looks them up reads of maps (weights, say), are
    computed where they are read. Each is a few operations, and would be a launch."""
    waiting = [node for node in graph.nodes if _looks_up_made(graph, node)]
    for node in waiting:
        while (maker := next(_cheaper_than_launch(graph, node, device.fusions.launch_work), None)) is not None:
            changed = inlined(node, maker, maker.stores[0])
            graph.replace(node, changed)
            remarks.fused(label(maker), label(changed), "computed where it is read")
            graph.remove(maker)
            node = changed


def _looks_up_made(graph: NodeGraph, node: AnyNode) -> bool:
    """Whether a node looks up elements at places that a map has made."""
    places = {
        ld.buffer
        for e in node.expressions()
        for load in e.loads
        for a in load.index.atoms()
        if isinstance(a, Indirect)
        for ld in a.value.loads  # type: ignore[attr-defined]
    }
    return isinstance(node, Map | Reduce) and any(isinstance(graph.producer(b), Map) for b in places)


def _cheaper_than_launch(graph: NodeGraph, node: AnyNode, most: int) -> Iterator[Map]:
    """Maps that nobody else reads, of so little work that the node may do it for each of its elements."""
    for buffer in node.reads():
        maker = graph.producer(buffer)
        alone = buffer.kind == "temp" and graph.readers(buffer) == [node]
        if not isinstance(maker, Map) or len(maker.stores) != 1 or not alone:
            continue
        spent = work(maker.stores[0].value) * _iterations(node)
        if spent <= most and not is_long(maker.stores[0].value):
            loads = loads_of(node, buffer)
            dense = all(invert(maker.stores[0], maker.dims, ld.index) is not None for ld in loads)
            if dense and not _overwritten(graph, maker, maker.stores[0], [node]):
                yield maker


def _overwritten(graph: NodeGraph, node: Map, store: Store, readers: list[AnyNode]) -> str:
    """Whether what the map reads is written over before a reader reads the map."""
    for reader in readers:
        if graph.crosses(node.reads(), node, reader) or (
            shared_roots(node.reads()) & overwrites(reader) and not over_own_elements(inlined(reader, node, store))
        ):
            return "what it reads is written over in place before it is read"
    return ""


def _iterations(node: AnyNode) -> int:
    total = number(node.extent)
    if isinstance(node, Reduce):
        for v in node.rdims:
            total *= number(v.extent)
    if isinstance(node, Scan):
        total *= number(node.step.extent)
    if isinstance(node, Scatter):
        total = max(total, number(product(v.extent for v in node.udims)))
    if isinstance(node, (Attention, AttentionGradient)):
        total = total // max(number(node.dims[3].extent), 1) * number(node.keys)
    return total


def inlined(reader: AnyNode, node: Map, store: Store) -> AnyNode:
    """The reader with every load of the map's buffer replaced by the map's expression at that place."""

    def leaf(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer is store.buffer):
            return None
        values = invert(store, node.dims, e.index)
        assert values is not None
        return substitute(store.value, values)

    changed = map_expressions(reader, lambda e: rewrite(e, leaf))
    return _with_origin(changed, node)


def _with_origin(reader: AnyNode, node: Map) -> AnyNode:
    from dataclasses import replace

    return replace(reader, origin=node.origin + reader.origin)
