"""Epilogue fusion: a map that reads the result of a GEMM, a convolution or a reduction becomes part of its store.

h[m, n] = acc                              y[m, n] = relu(acc + r[m, n])
y[i]    = relu(h[i] + r[i])        ->
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, Load, rewrite, substitute
from ...ir.in_place import over_own_elements, overwrites
from ...ir.index import ONE, ZERO, Binary, Index, Var
from ...ir.lanes import lane_stride
from ...ir.nodes import Map, Reduce, Store
from ...ir.program import AnyNode
from ...ir.structured import Conv, Gemm
from ...machine.cpu_loops import LANE_LOOPS
from ...machine.gpu import Device
from ...machine.targets import Family
from ..cost.estimates import is_long, number, work
from ..graph import NodeGraph, label
from ..loops.vector_axis import vector_loop
from ..remarks import Remarks
from .invert import digits, invert


def fuse_epilogues(graph: NodeGraph, remarks: Remarks, device: Device | None = None) -> None:
    """Fuses every map that can be into the last of the nodes that it reads. device: the GPU; None: a CPU."""
    for node in list(graph.nodes):
        if isinstance(node, Map):
            _consider(graph, node, remarks, device)


def _consider(graph: NodeGraph, consumer: Map, remarks: Remarks, device: Device | None) -> None:
    family: Family = "cpu" if device is None else "cuda"
    producers = [p for b in consumer.reads() for p in graph.writers(b)]
    if not producers:
        return
    last = max(producers, key=graph.position)
    if not isinstance(last, (Gemm, Conv, Reduce)):
        return
    store = _shared_store(last, consumer)
    if store is None:
        return
    if _finish_parts(graph, store, consumer, remarks, family):
        return
    reason, fused = _fuse(last, store, consumer)
    if fused is None:
        remarks.refused(label(last), label(consumer), reason)
        return
    if family == "cuda" and _widened(consumer, store.buffer) and _may_be_narrow(graph, store.buffer, consumer):
        remarks.refused(label(last), label(consumer), "what is stored is widened where it is read")
        return
    if isinstance(last, Conv) and last.algorithm == "pixels" and not _lie_as(consumer, store, fused):
        remarks.refused(label(last), label(consumer), "neighbouring elements would be stored one by one")
        return
    if device is not None and _updates_much(graph, last, store.buffer, device):
        remarks.refused(label(last), label(consumer), "an update that reads more than registers hold beside the sums")
        return
    if device is not None and (reason := _better_apart(graph, last, store.buffer, consumer, fused, device)):
        remarks.refused(label(last), label(consumer), reason)
        return
    if family == "cpu" and (_lie_apart(fused) or _interleaves(last, fused)):
        remarks.refused(label(last), label(consumer), "neighbouring elements would be stored one by one")
        return
    if graph.meets_readers(consumer, last) or not over_own_elements(fused):
        remarks.refused(label(last), label(consumer), "writes in place what others still read")
        return
    if store.buffer.kind == "temp" and graph.readers(store.buffer) == [consumer]:
        fused = replace(fused, stores=tuple(s for s in fused.stores if s.buffer is not store.buffer))
    remarks.fused(label(last), label(consumer), "finished in the epilogue")
    graph.replace(last, fused)
    graph.remove(consumer)


def _updates_much(graph: NodeGraph, producer: AnyNode, stored: Buffer, device: Device) -> bool:
    """Whether the maps that follow on each element of a large product write more of the model's state than an epilogue
    has registers for: an optimizer with moments, which is a kernel of its own then."""
    size = number(producer.extent)
    if not isinstance(producer, Gemm | Conv) or size < device.products.updated:
        return False
    waiting, seen = [stored], set[AnyNode]()
    while waiting:
        for reader in graph.readers(waiting.pop()):
            if isinstance(reader, Map) and reader.extent == producer.extent and reader not in seen:
                seen.add(reader)
                waiting += reader.writes()
    return sum(b.kind == "state" for node in seen for b in node.writes()) > device.products.states


def _better_apart(
    graph: NodeGraph, producer: AnyNode, stored: Buffer, consumer: Map, fused: AnyNode, device: Device
) -> str:
    """Why a map that follows a large product on a GPU is a kernel of its own, or a part of others; empty: it is not."""
    if not isinstance(producer, Gemm | Conv) or number(producer.extent) < device.products.updated:
        return ""
    loads = {ld for s in fused.stores for ld in s.value.loads}
    if isinstance(producer, Gemm) and len(_whole(loads, fused)) > device.products.beside:
        return (
            "waits for more tensors with the tensor cores idle than a map does that reads them at the speed of memory"
        )
    if (
        isinstance(producer, Gemm)
        and graph.readers(stored) != [consumer]
        and any(is_long(s.value) for s in consumer.stores)
    ):
        return "a function of what is stored anyway, which tensor cores wait for"
    readers = [r for s in consumer.stores for r in graph.readers(s.buffer)]
    loops = all(isinstance(r, Map | Reduce) for r in readers) and all(s.buffer.kind == "temp" for s in consumer.stores)
    if not readers or not loops or graph.readers(stored) == [consumer]:
        return ""
    others = _whole({ld for s in consumer.stores for ld in s.value.loads}, consumer) - {stored}
    cheap = not others and all(work(s.value) <= device.fusions.recomputed for s in consumer.stores)
    if cheap or all(isinstance(r, Reduce) for r in readers):
        return "its readers make it themselves of what is stored"
    return ""


def _whole(loads: set[Load], node: AnyNode) -> set[Buffer]:
    """The buffers of which each element of a node reads another one."""
    loops = {v for v in node.dims if v.extent != ONE}
    return {ld.buffer for ld in loads if loops <= ld.vars()}


def _may_be_narrow(graph: NodeGraph, stored: Buffer, consumer: Map) -> bool:
    """Whether others read what is stored, or all readers of the wider numbers may widen them by themselves."""
    if graph.readers(stored) != [consumer]:
        return True
    (store,) = consumer.stores
    readers = graph.readers(store.buffer)
    alone = store.buffer.kind == "temp" and all(isinstance(reader, Map | Reduce) for reader in readers)
    return alone and bool(readers) and stored.kind == "temp"


def _widened(consumer: Map, stored: Buffer) -> bool:
    """Whether a map only gives the numbers of a buffer a wider type: a second copy would be traffic."""
    (value, *others) = (s.value for s in consumer.stores)
    if others or not isinstance(value, Call) or value.op != "cast" or not isinstance(value.args[0], Load):
        return False
    return value.args[0].buffer is stored and DTYPES[value.dtype].size > DTYPES[stored.dtype].size


def _lie_as(consumer: Map, first: Store, fused: Conv | Gemm | Reduce) -> bool:
    """Whether all that a map adds lies in memory as what it finishes."""
    added = fused.stores[-len(consumer.stores) :]
    return all(s.index - first.index == ZERO for s in added)


def _lie_apart(node: Gemm | Conv | Reduce) -> bool:
    """Whether the elements of a row go to places without an even step, as those of heads of 24 elements do, or the
    channels of a pixel to a plane each, which a map does block by block."""
    if isinstance(node, Reduce):
        return False
    planes = isinstance(node, Conv) and node.dims[-1].extent != ONE
    steps = [lane_stride(s.index, node.dims[-1]) for s in node.stores]
    return any(step is None or (planes and step != ONE) for step in steps)


def _interleaves(node: Gemm | Conv | Reduce, fused: Gemm | Conv | Reduce) -> bool:
    """Whether a reduction with the lanes along a kept loop would store element by element, which a map interleaves or
    turns by tiles. Results that lie far apart are reduced in their own order, but for windows along the lanes."""
    if not isinstance(node, Reduce) or not isinstance(fused, Reduce) or not node.dims:
        return False
    lanes = node.dims[-1]
    windows = (lanes.extent.constant or LANE_LOOPS.least) >= LANE_LOOPS.least and _windows_along(node, lanes)
    if not windows and vector_loop(node) not in node.dims:
        return False
    steps = [lane_stride(s.index, lanes) for s in fused.stores]
    apart = [step.constant or 0 for step in steps if step is not None]
    return any(step > 1 and (step < LANE_LOOPS.apart or windows) for step in apart)


def _windows_along(node: Reduce, lanes: Var) -> bool:
    """Whether neighbours along a loop reduce some of the same elements, or what lies between each other's."""
    for load in (load for reduction in node.reductions for load in reduction.value.loads):
        for atom in load.index.atoms():
            moving = atom.a.vars() | atom.b.vars() if isinstance(atom, Binary) else set()
            if lanes in moving and moving & set(node.rdims):
                return True
        step, extent = load.index.coefficient(lanes), lanes.extent.constant
        for tap in node.rdims:
            near, turns = load.index.coefficient(tap), tap.extent.constant
            if not (step and near and step.constant and near.constant and turns and extent):
                continue
            if (
                abs(step.constant) <= abs(near.constant) * (turns - 1)
                and abs(near.constant) < abs(step.constant) * extent
            ):
                return True
    return False


def _finish_parts(graph: NodeGraph, store: Store, consumer: Map, remarks: Remarks, family: Family) -> bool:
    """Fuses a map into all of the convolutions that make its operand, each some of the pixels; False when it cannot.

    for q: h[s*q + r] = acc_r     (r < s)          for q: y[s*q + r] = relu(acc_r)
    for i: y[i] = relu(h[i])                 ->
    """
    buffer, parts = store.buffer, graph.writers(store.buffer)
    if len(parts) < 2 or buffer.kind != "temp" or graph.readers(buffer) != [consumer]:
        return False
    first = min(parts, key=graph.position)
    others = [p for b in consumer.reads() if b is not buffer for p in graph.writers(b)]
    late = any(graph.position(p) > graph.position(first) for p in others)
    if late or overwrites(consumer) or graph.crosses(consumer.reads(), first, consumer):
        return False
    fused = [_finished(part, buffer, consumer) for part in parts]
    if None in fused or (family == "cpu" and any(_lie_apart(node) for node in fused if node is not None)):
        return False
    for part, new in zip(list(parts), fused, strict=True):
        assert new is not None
        remarks.fused(label(part), label(consumer), "finished in the epilogue")
        graph.replace(part, new)
    graph.remove(consumer)
    return True


def _finished(part: AnyNode, buffer: Buffer, consumer: Map) -> Conv | None:
    """A convolution with the map on the elements that it makes; None when their places are no plain sums of loops."""
    if not isinstance(part, Conv) or len(part.stores) != 1:
        return None
    (store,) = part.stores
    loads = {ld.index for s in consumer.stores for ld in s.value.loads if ld.buffer is buffer}
    values = invert(Store(buffer, loads.pop(), store.value), consumer.dims, store.index) if len(loads) == 1 else None
    if values is None or any(isinstance(a, Binary) for index in values.values() for a in index.atoms()):
        return None

    def leaf(e: Expr) -> Expr | None:
        return store.value if isinstance(e, Load) and e.buffer is buffer else None

    stores = (
        Store(s.buffer, s.index.substitute(values), rewrite(substitute(s.value, values), leaf)) for s in consumer.stores
    )
    return replace(part, stores=tuple(stores), origin=part.origin + consumer.origin)


def _shared_store(producer: Gemm | Conv | Reduce, consumer: Map) -> Store | None:
    reads = set(consumer.reads())
    return next((s for s in producer.stores if s.buffer in reads), None)


def _fuse(producer: Gemm | Conv | Reduce, store: Store, consumer: Map) -> tuple[str, Gemm | Conv | Reduce | None]:
    loads = [ld for s in consumer.stores for ld in s.value.loads if ld.buffer is store.buffer]
    places = {ld.index for ld in loads}
    if len(places) != 1:
        return "reads several places of the result for each element", None
    values = _positions(store, producer, consumer, places.pop())
    if values is None:
        return "does not read each element of the result exactly once", None
    stored = {s.buffer: s for s in producer.stores}

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in stored and e.index == stored[e.buffer].index:
            return stored[e.buffer].value
        return None

    added = []
    for s in consumer.stores:
        value = rewrite(substitute(s.value, dict(values)), leaf)
        if any(ld.buffer in stored for ld in value.loads):
            return "reads a part of the result that another row computes", None
        added.append(Store(s.buffer, s.index.substitute(dict(values)), value))
    return "", replace(producer, stores=(*producer.stores, *added), origin=producer.origin + consumer.origin)


def _positions(store: Store, producer: AnyNode, consumer: Map, place: Index) -> dict | None:
    """The consumer's loops as functions of the producer's, when both run over the same elements."""
    if digits(store, producer.dims) is None:
        return None
    reader = Store(store.buffer, place, store.value)
    return invert(reader, consumer.dims, store.index)
