"""Tiles that were measured on a device and ship with mycc: tiles_sm90.json, written by bench/gpu_kernels.py.

A row serves the shape that it was measured at and shapes of its class: the same element type, and sizes that are within
a factor of it. To add a chip: run bench/gpu_kernels.py on it, see docs/gpu-tiles.md.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from .device import Device
from .tiles import AttentionTile, GemmTile, Shape

#: how far a shape may be from a measured one: the sum over its sizes of |log2(size / measured)|
NEAR = 0.35


def measured_gemm(shape: Shape, dtype: str, device: Device) -> GemmTile | None:
    """The tile measured for products like this one, or None."""
    sizes = (shape.m, shape.n, shape.k, shape.batch)
    row = _nearest("gemm", ("m", "n", "k", "batch"), sizes, dtype, device)
    return GemmTile(**row["tile"]) if row else None


def measured_time(shape: Shape, dtype: str, device: Device) -> float | None:
    """Microseconds measured for products like this one, or None."""
    sizes = (shape.m, shape.n, shape.k, shape.batch)
    row = _nearest("gemm", ("m", "n", "k", "batch"), sizes, dtype, device)
    return float(row["us"]) if row else None


def measured_conv(shape: Shape, dtype: str, device: Device) -> GemmTile | None:
    """The tile measured for convolutions like this one (as products), or None."""
    sizes = (shape.m, shape.n, shape.k, shape.batch)
    row = _nearest("conv", ("m", "n", "k", "batch"), sizes, dtype, device)
    return GemmTile(**row["tile"]) if row else None


def measured_attention(
    queries: int, keys: int, head: int, products: int, causal: bool, dtype: str, device: Device
) -> AttentionTile | None:
    """The tile measured for attentions like this one, or None; products: batches times heads."""
    sizes = (queries, keys, head, products)
    row = _nearest("attention", ("queries", "keys", "head", "products"), sizes, dtype, device, causal=causal)
    return AttentionTile(**row["tile"]) if row else None


def _nearest(
    kind: str, names: tuple[str, ...], sizes: tuple[int, ...], dtype: str, device: Device, causal: bool = False
) -> dict[str, Any] | None:
    found, best = None, NEAR
    dtype = "bf16" if dtype == "f16" else dtype
    for row in rows(device.capability):
        if row["kind"] != kind or row["dtype"] != dtype or row.get("causal", False) != causal:
            continue
        if dtype == "f32" and row.get("float32") != device.float32:
            continue
        distance = sum(abs(math.log2(size / row[name])) for name, size in zip(names, sizes, strict=True))
        if distance < best:
            found, best = row, distance
    return found


@cache
def rows(capability: int) -> tuple[dict[str, Any], ...]:
    """The measurements of a chip; none for one that nobody has measured."""
    path = Path(__file__).with_name(f"tiles_sm{capability}.json")
    return tuple(json.loads(path.read_text(encoding="utf-8"))["rows"]) if path.exists() else ()
