"""Narrow results: what is rounded to 16 bits and widened again is stored as the 16 bits, and widened where it is read.

    t[i] = to_f32(to_bf16(f(x[i])))                    t[i] = to_bf16(f(x[i]))
    y[i] = g(t[i])                          ->         y[i] = g(to_f32(t[i]))

Law: widening is exact, so that every reader has the same number. A training step under autocast widens the gradients of
its products one by one, and several kernels read each.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, Load, rewrite
from ...ir.nodes import Map, Node, Reduce, Store
from ...ir.program import AnyNode
from ...ir.rewrite import map_expressions
from ...ir.structured import Conv, Gemm
from ..graph import NodeGraph, label, operand_buffers
from ..remarks import Remarks


def narrow_results(graph: NodeGraph, remarks: Remarks) -> None:
    """Stores every temporary value that is only widened at its end in front of that."""
    for buffer in dict.fromkeys(b for node in graph.nodes for b in node.writes() if b.kind == "temp"):
        node, readers = graph.producer(buffer), list(graph.readers(buffer))
        if buffer.of is not None or not isinstance(node, Map | Reduce | Gemm | Conv) or not readers:
            continue
        stores = [s for s in node.stores if s.buffer is buffer]
        narrow = _widened(stores[0].value) if len(stores) == 1 else None
        if narrow is None or any(not isinstance(r, Node) or buffer in operand_buffers(r) for r in readers):
            continue
        new = Buffer(buffer.name, narrow.dtype, buffer.size, "temp")
        remarks.fused(label(node), label(readers[0]), "stored in 16 bits, and widened where it is read")
        graph.replace(node, _storing(node, buffer, new, narrow))
        for reader in readers:
            graph.replace(reader, _reading(reader, buffer, new))


def _widened(value: Expr) -> Expr | None:
    """What a value is widened from, where that has been rounded to 16 bits; else None."""
    if not isinstance(value, Call) or value.op != "cast" or DTYPES[value.dtype].kind != "f":
        return None
    (inner,) = value.args
    rounded = isinstance(inner, Call) and inner.op == "cast" and DTYPES[inner.dtype].kind == "f"
    return inner if rounded and DTYPES[inner.dtype].size == 2 < DTYPES[value.dtype].size else None


def _storing(node: AnyNode, old: Buffer, new: Buffer, value: Expr) -> AnyNode:
    assert isinstance(node, Node)
    return replace(node, stores=tuple(Store(new, s.index, value) if s.buffer is old else s for s in node.stores))


def _reading(node: AnyNode, old: Buffer, new: Buffer) -> AnyNode:
    def leaf(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer is old):
            return None
        return Call("cast", (Load(new, e.index),), old.dtype)

    return map_expressions(node, lambda e: rewrite(e, leaf))
