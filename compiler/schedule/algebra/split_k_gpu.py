"""Split-K on a GPU: a product with few rows becomes parts of k, and the norm that reads the product adds them up.

    y[m, n] = sum over k:K of a[m, k] * b[k, n] + bias[n]

    p[s, m, n] = sum over k:K/S of a[m, s*K/S + k] * b[s*K/S + k, n]
    y[m, n] = p[0, m, n] + p[1, m, n] + ... + bias[n]

The sums are equal by the law `split_k` of ir/laws.py. A product of 128 rows has fewer tiles than a GPU has
multiprocessors, and each iterates over all of k. With S times as many programs these loops are shorter. The sum, in a
fixed order, is fused into a kernel over the rows (a norm, a softmax) that reads y anyway, and costs almost nothing.
Measured in docs/decisions/0015-split-products.md.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.bounds import largest
from ...ir.buffers import Buffer, Operand
from ...ir.expr import Acc, Call, Expr, Load, rewrite
from ...ir.index import Var, as_index, of, product, row_major
from ...ir.layouts import PANEL
from ...ir.nodes import Map, Reduce, Store
from ...ir.structured import Gemm
from ...machine.gpu import Device
from ..gpu.product_plans import product_ranges
from ..gpu.tiles import expected_time, gemm_shape
from ..graph import NodeGraph
from ..loops.vector_axis import reduces_contiguous

#: maps between the product and the rows
REACH = 4


def split_products(graph: NodeGraph, device: Device) -> None:
    """Rewrites the products that win by it."""
    for node in list(graph.nodes):
        if isinstance(node, Gemm):
            parts = _parts(node, device)
            if parts > 1 and _feeds_rows(graph, node):
                graph.replace_by(node, split_product(node, parts))


def _parts(node: Gemm, device: Device) -> int:
    """How many parts a product is split into; 1 for one that is not."""
    rows, n, k = node.dims[-2].extent, node.dims[-1].extent.constant, node.k.constant
    most, facts = largest(rows), device.splits
    if node.quantised is not None:
        return 1  # its kernels share tiles
    if len(node.dims) != 2 or node.packed or len(node.stores) != 1 or most is None or most > facts.product_rows:
        return 1
    if n is None or k is None or node.b.buffer.kind != "const" or product_ranges(node, device):
        return 1  # of many rows the product is faster whole, and few ones share tiles
    shape, dtype = gemm_shape(node), node.b.buffer.dtype
    whole = expected_time(shape, dtype, device)
    times = {1: whole - facts.gain}
    for parts in facts.product_parts:
        if k % (parts * facts.step) == 0:
            part = replace(shape, k=k // parts, batch=parts)
            times[parts] = expected_time(part, dtype, device, unsplit=True) + facts.read * parts
    return min(times, key=lambda p: (times[p], p))


def _feeds_rows(graph: NodeGraph, node: Gemm) -> bool:
    """Whether a reduction over the rows of the result follows, with nothing but maps in between."""
    m, n = node.dims[-2].extent, node.dims[-1].extent
    buffers, seen = [node.stores[0].buffer], set()
    for _ in range(REACH):
        found: list[Buffer] = []
        for reader in (r for b in buffers for r in graph.readers(b)):
            if isinstance(reader, Reduce) and reduces_contiguous(reader):
                inner = product(v.extent for v in reader.rdims)
                if product(v.extent for v in reader.dims) == m and inner == n:
                    return True
            elif isinstance(reader, Map) and reader.extent == m * n and reader not in seen:
                seen.add(reader)
                found += [b for b in reader.writes() if b.kind == "temp"]
        buffers = found
    return False


def split_product(node: Gemm, parts: int) -> tuple[Gemm, Map]:
    """The product as so many of equal parts of k, and the map that adds them."""
    run = node.k // as_index(parts)
    (store,) = node.stores
    size = product(v.extent for v in node.dims)
    buffer = Buffer(f"{store.buffer.name}_parts", "f32", size * parts, "temp")
    s = Var(f"s{node.dims[-2].name}", as_index(parts))
    acc = Acc(f"{node.acc.name}p", node.acc.dtype)

    a = Operand(node.a.buffer, node.a.offset, (run * node.a.strides[-1], *node.a.strides))
    b_strides = (run * PANEL, node.k * PANEL) if node.packed else (run * node.b.strides[-2], *node.b.strides)
    b = Operand(node.b.buffer, node.b.offset, b_strides)
    product_of_parts = replace(
        node, dims=(s, *node.dims), stores=(Store(buffer, row_major(node.dims, of(s)), acc),), k=run, a=a, b=b, acc=acc
    )
    total: Expr = Load(buffer, row_major(node.dims))
    for i in range(1, parts):
        total = Call("add", (total, Load(buffer, row_major(node.dims, as_index(i)))), "f32")
    value = rewrite(store.value, lambda e: total if e == node.acc else None)
    return product_of_parts, Map(node.dims, (replace(store, value=value),), node.origin)
