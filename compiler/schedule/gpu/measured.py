"""Tiles that were measured on a device and ship with mycc: tiles_sm90.json, written by bench/gpu_kernels.py.

A row serves the shape that it was measured at and shapes of its class: the same element type, and sizes that are within
a factor of it. Its tile serves every chip of the capability, its time the chip alone that the table names: an H100 and
an H200 multiply alike, and read memory at different speeds. To add a chip: run bench/gpu_kernels.py on it, see
docs/gpu-tiles.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from ...ir.plans.tiles import AttentionTile, GemmTile
from ...ir.structured import Attention, Conv, Gemm
from ...machine.gpu import Device
from .axes import as_gemm
from .tiles import Shape, conv_shape, gemm_shape, is_heavy, typical

Row: TypeAlias = Mapping[str, Any]
#: how far a shape may be from a measured one: the sum over its sizes of |log2(size / measured)|
NEAR = 0.35


def database_key(node: Gemm | Conv | Attention) -> dict[str, Any]:
    """The sizes of a node as a row of the database has them."""
    if isinstance(node, Attention):
        b, h, m, _ = node.dims
        sizes = {"queries": m.extent, "keys": node.keys, "head": node.head_size, "products": b.extent * h.extent}
        causal = {"causal": True} if node.causal else {}
        found = {name: typical(size) for name, size in sizes.items()}
        return {"kind": "attention", **found, "dtype": node.q.buffer.dtype, **causal}
    product = as_gemm(node) if isinstance(node, Conv) else node
    if product is not None:
        shape, dtype = gemm_shape(product), product.b.buffer.dtype
        sizes_of = {"m": shape.m, "n": shape.n, "k": shape.k, "batch": shape.batch}
        pair = {"together": 1 + len(product.also)} if product.also else {}
        heavy = {"heavy": True} if is_heavy(product) else {}
        return {"kind": "gemm", **sizes_of, "dtype": dtype, **pair, **heavy}
    assert isinstance(node, Conv)
    shape, kernel = conv_shape(node), node.window.kernel[0]
    sizes_of = {"m": shape.m, "n": shape.n, "k": shape.k, "batch": shape.batch}
    return {"kind": "conv", **sizes_of, "dtype": node.w.dtype, "kernel": kernel}


def measured_gemm(shape: Shape, dtype: str, device: Device, together: int = 1, heavy: bool = False) -> GemmTile | None:
    """The tile measured for products like this one, or None.

    together: products that share a tile, with all their columns in `shape`. heavy: see tiles.is_heavy(); rows that were
    measured so come first.
    """
    row = _nearest_gemm(shape, dtype, device, together, heavy)
    return GemmTile(**row["tile"]) if row else None


def measured_time(shape: Shape, dtype: str, device: Device) -> float | None:
    """Microseconds measured for products like this one on this chip, or None."""
    if device.name != chip(device.capability):
        return None  # another chip of its kind has another memory
    row = _nearest_gemm(shape, dtype, device, 1, False)
    return float(row["us"]) if row and "us" in row else None


def _nearest_gemm(shape: Shape, dtype: str, device: Device, together: int, heavy: bool) -> Row | None:
    found = [row for row in rows(device.capability) if row["kind"] == "gemm" and row.get("together", 1) == together]
    alike = [row for row in found if row.get("heavy", False) == heavy]
    sizes = {"m": shape.m, "n": shape.n, "k": shape.k, "batch": shape.batch}
    return _nearest(alike, sizes, dtype, device) or _nearest(found, sizes, dtype, device)


def measured_conv(shape: Shape, dtype: str, device: Device) -> GemmTile | None:
    """The tile measured for convolutions like this one (as products), or None."""
    found = [row for row in rows(device.capability) if row["kind"] == "conv"]
    row = _nearest(found, {"m": shape.m, "n": shape.n, "k": shape.k, "batch": shape.batch}, dtype, device)
    return GemmTile(**row["tile"]) if row else None


def measured_attention(
    queries: int, keys: int, head: int, products: int, causal: bool, dtype: str, device: Device
) -> AttentionTile | None:
    """The tile measured for attentions like this one, or None; products: batches times heads."""
    every = (row for row in rows(device.capability) if row["kind"] == "attention")
    found = [row for row in every if row.get("causal", False) == causal]
    sizes = {"queries": queries, "keys": keys, "head": head, "products": products}
    row = _nearest(found, sizes, dtype, device)
    return AttentionTile(**row["tile"]) if row else None


def _nearest(among: Sequence[Row], sizes: Mapping[str, int], dtype: str, device: Device) -> Row | None:
    """The nearest of rows of one kind, if it is near."""
    found, best = None, NEAR
    dtype = "bf16" if dtype == "f16" else dtype
    for row in among:
        if row["dtype"] != dtype or (dtype == "f32" and row.get("float32") != device.float32):
            continue
        distance = sum(abs(math.log2(size / row[name])) for name, size in sizes.items())
        if distance < best:
            found, best = row, distance
    return found


def rows(capability: int) -> tuple[Row, ...]:
    """The measurements of the chips of a capability; none where nobody has measured one."""
    return _table(capability)[1]


def chip(capability: int) -> str:
    """The chip on which the rows of a capability were measured; "" where nobody has measured one."""
    return _table(capability)[0]


@cache
def _table(capability: int) -> tuple[str, tuple[Row, ...]]:
    path = Path(__file__).with_name(f"tiles_sm{capability}.json")
    if not path.exists():
        return "", ()
    table = json.loads(path.read_text(encoding="utf-8"))
    return str(table["chip"]), tuple(table["rows"])
