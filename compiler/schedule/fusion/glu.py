"""GLU fusion: the epilogue of a merged product combines its two halves, the gate and the value.

t[m, n] = sum over k of x[m, k] * w[n, k]              n < 2N, gate and value side by side
y[m, n] = silu(t[m, n]) * t[m, N + n]                  n < N

y[m, n] = silu(acc) * acc1                             acc over w[n, :], acc1 over w[N + n, :]

On a CPU the weights are packed, and the second half begins with a panel of its own.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.buffers import Operand
from ...ir.expr import Acc, Expr, Load, rewrite, substitute
from ...ir.in_place import over_own_elements
from ...ir.index import (
    ONE,
    Atom,
    Index,
    Var,
    of,
    product,
)
from ...ir.layouts import PANEL
from ...ir.nodes import Map, Store
from ...ir.rewrite import flattened
from ...ir.structured import Gemm
from ...machine.targets import Family
from ..graph import NodeGraph, label
from ..remarks import Remarks


def fuse_glu(graph: NodeGraph, remarks: Remarks, family: Family) -> None:
    """Fuses every map that reads nothing of a product but both halves of its columns, and is its only reader."""
    for node in list(graph.nodes):
        if not isinstance(node, Gemm) or node.also or len(node.dims) != 2 or len(node.stores) != 1:
            continue
        if not _may_pair(node, family):
            continue
        readers = graph.readers(node.stores[0].buffer)
        if node.stores[0].buffer.kind != "temp" or len(readers) != 1 or not isinstance(readers[0], Map):
            continue
        reader = readers[0]
        fused = _fuse(node, reader)
        if fused is not None and not graph.meets_readers(reader, node) and over_own_elements(fused):
            remarks.fused(label(node), label(reader), "both halves of a product meet in its epilogue")
            graph.replace(node, fused)
            graph.remove(reader)


def _may_pair(node: Gemm, family: Family) -> bool:
    """Whether there is a kernel that sums up pairs of columns."""
    if node.quantised is not None and (family == "cpu" or node.quantised.group):
        return False
    if family == "cpu":
        return node.packed
    return not node.packed and node.dims[0].extent != ONE  # a single row has a kernel of its own


def _fuse(node: Gemm, reader: Map) -> Gemm | None:
    (store,) = node.stores
    m, n = node.dims
    if n.extent.constant is None or n.extent.constant % 2 or not reader.dims:
        return None
    half = n.extent.constant // 2
    if node.packed and half % PANEL:
        return None
    if product(v.extent for v in reader.dims[:-1]) != m.extent or reader.dims[-1].extent != half:
        return None
    column = Var(n.name, Index({(): half}))
    first: dict[Atom, Index] = {n: of(column)}
    second: dict[Atom, Index] = {n: of(column) + half}
    acc = Acc(f"{node.acc.name}h", node.acc.dtype)
    places = {
        store.index.substitute(first): substitute(store.value, first),
        store.index.substitute(second): rewrite(
            substitute(store.value, second), lambda e: acc if e == node.acc else None
        ),
    }
    values = {**flattened(reader.dims[:-1], m), reader.dims[-1]: of(column)}

    def leaf(e: Expr) -> Expr | None:
        return places.get(e.index) if isinstance(e, Load) and e.buffer is store.buffer else None

    stores = tuple(
        Store(s.buffer, s.index.substitute(values), rewrite(substitute(s.value, values), leaf)) for s in reader.stores
    )
    if any(ld.buffer is store.buffer for s in stores for ld in s.value.loads):
        return None
    if not any(e == acc for s in stores for e in s.value.walk()):
        return None
    b = node.b
    other = Operand(b.buffer, b.offset + (node.k if node.packed else b.strides[-1]) * half, b.strides)
    return replace(node, dims=(m, column), stores=stores, also=((other, acc),), origin=node.origin + reader.origin)
