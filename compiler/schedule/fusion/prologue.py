"""Prologue fusion, on a GPU: a map that one product alone reads, as its left operand, is computed where it is loaded.

t[m, k] = relu(x[m, k])
y[m, n] = sum over k of t[m, k] * w[k, n]      ->      y[m, n] = sum over k of relu(x[m, k]) * w[k, n]

This saves a kernel and a round trip to memory, but every tile of columns recomputes the operand. An estimate decides
which takes longer (docs/decisions/0039-computed-operands.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Operand
from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Expr, Load, rewrite, substitute
from ...ir.in_place import overwrites, shared_roots
from ...ir.index import ONE, ZERO, Indirect, Var, of
from ...ir.nodes import Map
from ...ir.structured import Gemm, Prologue
from ...machine.cpu_loops import WORK
from ...machine.gpu import TENSOR_CORE_TILE, Device
from ..cost.estimates import work
from ..cost.traffic import traffic
from ..gpu.tiles import (
    GemmTile,
    gemm_shape,
    gemm_tile,
    operand_bytes,
    stage_bytes,
    typical,
)
from ..graph import NodeGraph, label
from ..remarks import Remarks
from .invert import invert

#: element types of products' operands
MULTIPLIED = ("f32", "f16", "bf16")


def fuse_prologues(graph: NodeGraph, remarks: Remarks, device: Device) -> None:
    """Fuses every map that can be into the product behind it, where the product then takes less time than both."""
    for node in list(graph.nodes):
        if not isinstance(node, Gemm) or node.prologue is not None or node.quantised is not None:
            continue
        producer = graph.producer(node.a.buffer)
        if not isinstance(producer, Map) or node.a.buffer.kind != "temp":
            continue
        fused = _fused(graph, producer, node)
        reason = fused if isinstance(fused, str) else _slower(producer, fused, device)
        if reason:
            remarks.refused(label(producer), label(node), reason)
            continue
        assert isinstance(fused, Gemm)
        remarks.fused(label(producer), label(node), "computed where the product loads it")
        graph.replace(node, fused)
        graph.remove(producer)


def _fused(graph: NodeGraph, producer: Map, node: Gemm) -> Gemm | str:
    """The product that computes its operand, or why there is none."""
    buffer = node.a.buffer
    elsewhere = (
        *(b.buffer for b, _ in node.also),
        node.b.buffer,
        *(ld.buffer for e in node.expressions() for ld in e.loads),
    )
    if graph.readers(buffer) != [node] or buffer in elsewhere:
        return "read by others than the product, or twice"
    if graph.crosses(producer.reads(), producer, node) or shared_roots(producer.reads()) & overwrites(node):
        return "what it reads is written over in place before it is read"
    (store, *others) = producer.stores
    if others or buffer.dtype not in MULTIPLIED:
        return "makes several results, or one that products do not multiply"
    depth = Var(f"k{node.dims[-1].name}", node.k)
    rows = node.dims[:-1]
    place = node.a.offset
    for loop, stride in zip((*rows, depth), node.a.strides, strict=True):
        place = place + of(loop) * stride
    values = invert(store, producer.dims, place)
    if values is None:
        return "its elements are not written in one dense order"
    value = substitute(store.value, values)
    loads = [(ld, operand) for ld in value.loads if (operand := _operand(ld, rows, depth)) is not None]
    if not loads or any(isinstance(a, Indirect) for ld in value.loads for a in ld.index.atoms()):
        return "reads nothing that lies row by row, or places that are read from memory"
    load, operand = max(loads, key=lambda pair: _spread(pair[1]))
    acc = Acc("a", load.dtype)

    def leaf(e: Expr) -> Expr | None:
        return acc if e == load else None

    prologue = Prologue(depth, acc, rewrite(value, leaf), buffer.dtype)
    return replace(node, a=operand, prologue=prologue, origin=producer.origin + node.origin)


def _operand(load: Load, rows: Sequence[Var], depth: Var) -> Operand | None:
    """A load as a strided operand; None when it does not lie so."""
    strides, rest = [], load.index
    for loop in (*rows, depth):
        stride = load.index.coefficient(loop)
        if stride is None:
            return None
        strides.append(stride)
        rest = rest.without(loop)
    return Operand(load.buffer, rest, tuple(strides)) if strides[-1] == ONE and not rest.vars() else None


def _spread(operand: Operand) -> tuple[int, int]:
    """How much there is of an operand: loops that move it, and bytes of an element."""
    return sum(stride != ZERO for stride in operand.strides), DTYPES[operand.buffer.dtype].size


def _slower(producer: Map, fused: Gemm, device: Device) -> str:
    """Why a product is not to compute its operand; empty when it is."""
    saved = device.launch + typical(traffic(producer).total) / (device.reached * device.bytes_a_microsecond)
    spent = extra_time(fused, gemm_tile(fused, device), device)
    return "" if spent <= saved else f"the product would take {spent:.2g} us longer, {saved:.2g} us are saved"


def extra_time(node: Gemm, tile: GemmTile, device: Device) -> float:
    """Microseconds by which a product takes longer as it computes its operand: arithmetic that nothing hides, in rounds
    of as many programs as the multiprocessors hold.

    What an operation costs was fitted to products on an H200 (machine.gpu_programs.FusionFacts).
    """
    assert node.prologue is not None
    shape, facts = gemm_shape(node), device.fusions
    programs = -(-shape.m // tile.m) * -(-shape.n // (tile.n * (1 + len(node.also)))) * shape.batch * tile.split
    together = min(_resident(node, tile, device), -(-programs // device.sms))
    rounds = -(-programs // (device.sms * together))
    elements = tile.m * -(-shape.k // tile.split)
    as_it_lies = operand_bytes(node) == DTYPES[node.prologue.dtype].size
    value, moving = node.prologue.value, {node.dims[-2], node.prologue.depth}
    tiles = sum(moving <= ld.own_vars() for ld in value.loads)  # that come as the operand does
    operations = work(value) - WORK.load * tiles + facts.moves + (0 if as_it_lies else facts.through_shared)
    if as_it_lies and tile.m < facts.group_rows and not tile.vector:
        operations *= max(1, tile.warps * TENSOR_CORE_TILE // tile.m)  # warps side by side compute the same rows
    return rounds * together * elements * operations * device.sms / (device.reached * device.additions_a_microsecond)


def _resident(node: Gemm, tile: GemmTile, device: Device) -> int:
    """Programs that a multiprocessor holds at a time, by their shared memory."""
    if tile.descriptors:
        return tile.together
    return max(1, device.shared // (stage_bytes(node, tile) * tile.stages))
