"""Tiles that are worth a measurement for a matrix node: what the tuner and the bench of kernels try."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...ir.plans.tiles import AttentionTile, GemmTile
from ...ir.program import AnyNode
from ...ir.structured import Attention, Conv, Gemm
from ...machine.gpu import Device
from ...schedule.gpu.axes import as_gemm
from ...schedule.gpu.fit import attention_misfit, misfit
from ...schedule.gpu.tiles import (
    Shape,
    conv_shape,
    estimate,
    gemm_shape,
    leaves_registers,
    needed_tiles,
    typical,
    with_room,
)

#: parts of the shared memory of a program that operands of a product's tile may take, and of a convolution's
PRODUCT_SHARED, CONV_SHARED = 0.925, 0.861
#: rows from which a product is cut into large tiles; up to it into few, or parts of k
MANY_ROWS = 1024
#: depth up to which many rows take longer to move than to multiply
SHALLOW = 512
#: of products with few rows, so many tiles without and with descriptors
MOST_FEW, MOST_MIDDLE = 14, 8


def tile_candidates(node: AnyNode, device: Device) -> tuple[GemmTile | AttentionTile, ...]:
    """Tiles that fit a node, without an order; none for a node that is not cut into tiles."""
    if isinstance(node, Attention):
        queries, keys, head = typical(node.dims[2].extent), typical(node.keys), typical(node.head_size)
        found = attention_tiles(queries, keys, head, queries < 16)
        return tuple(dict.fromkeys(t for t in found if not attention_misfit(node, t)))
    product = as_gemm(node) if isinstance(node, Conv) else node
    if isinstance(product, Gemm):
        return _gemm_candidates(product, device)
    return conv_tiles(node, device) if isinstance(node, Conv) and not node.depthwise else ()


def _gemm_candidates(node: Gemm, device: Device) -> tuple[GemmTile, ...]:
    shape, dtype = gemm_shape(node), node.b.buffer.dtype
    sizes = (shape.m, shape.n, shape.k, shape.batch)
    if shape.m < MANY_ROWS:
        few, middle = (
            _promising(tiles(device, *sizes), shape, dtype, device) for tiles in (skinny_tiles, middle_tiles)
        )
        tiles = [*few[:MOST_FEW], *middle[:MOST_MIDDLE]]
    else:
        tiles = list(large_tiles(dtype))
    if shape.m >= MANY_ROWS and dtype != "f32" and shape.k <= SHALLOW:
        tiles = list(shallow_tiles(shape, device))
    if node.also:
        tiles = [of_pair(tile, node) for tile in tiles if tile.split == 1]
    tiles = [with_room(tile, node, device) for tile in tiles]
    needed = needed_tiles(node)
    fitting = (t for t in tiles if not misfit(node, t) and (t.specialize or leaves_registers(t, device, needed)))
    return tuple(dict.fromkeys(fitting))


def _promising(tiles: Iterator[GemmTile], shape: Shape, dtype: str, device: Device) -> list[GemmTile]:
    return sorted(tiles, key=lambda tile: estimate(shape, dtype, tile, device))


def of_pair(tile: GemmTile, node: Gemm) -> GemmTile:
    """The tile of several products with as many columns together."""
    width = tile.parts[0] // (1 << len(node.also).bit_length() - 1)
    return replace(tile, n=max(16, width), flatten=False, halves=False)


def skinny_tiles(device: Device, m: int, n: int, k: int, batch: int = 1) -> Iterator[GemmTile]:
    """Tiles of products with few rows."""
    if m == 1:
        for bn, bk, split in itertools.product((4, 8, 16), (256, 512, 1024), (1, 2, 4)):
            if k >= split * bk and 128 <= n // bn * split <= 4096 and 2048 <= bn * bk <= 8192:
                yield GemmTile(1, bn, bk, 4, 3, split, vector=True)
    few = ((16, 32), (16, 64), (16, 128))
    blocks = few if m <= 16 else ((32, 64), (64, 32), (64, 64), (128, 32), (128, 64), (64, 128), (128, 128))
    for (bm, bn), bk, split in itertools.product(blocks, (64, 128), (1, 2, 3, 4, 6, 8)):
        programs = -(-m // bm) * -(-n // bn) * split * batch
        steps = -(-k // (split * bk))
        if (
            (programs < 60 and split < 8)
            or (programs > 400 and split > 1)
            or k % (split * bk)
            or (steps < 2 and split > 1)
        ):
            continue
        stages = max(2, min(4, steps, int(PRODUCT_SHARED * device.shared // ((bm + bn) * bk * 2))))
        yield GemmTile(bm, bn, bk, 8 if bm * bn >= 128 * 128 else 4, stages, split)


def middle_tiles(device: Device, m: int, n: int, k: int, batch: int = 1) -> Iterator[GemmTile]:
    """Tiles with descriptors for products of a few hundred rows."""
    for (bm, bn), bk, split in itertools.product(
        ((64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (128, 256)), (64, 128), (1, 2, 3, 4)
    ):
        programs = -(-m // bm) * -(-n // bn) * split * batch
        stages = min(4, int(PRODUCT_SHARED * device.shared // ((bm + bn) * bk * 2)))
        if not 44 <= programs <= 300 or k % (split * bk) or stages < 2 or (split > 1 and k < split * bk * 3):
            continue
        warps = 8 if bm * bn >= 128 * 128 else 4
        yield GemmTile(bm, bn, bk, warps, stages, split, descriptors=True, together=4)


def large_tiles(dtype: str = "bf16") -> Iterator[GemmTile]:
    """Tiles of products with many rows."""
    if dtype == "f32":
        for bm, bn, bk, warps in (
            (128, 128, 16, 8),
            (128, 64, 16, 8),
            (64, 64, 16, 4),
            (64, 64, 32, 4),
            (128, 64, 32, 8),
        ):
            yield GemmTile(bm, bn, bk, warps, 3)
        return
    yield GemmTile(128, 256, 64, 8, 3)
    yield GemmTile(128, 128, 64, 8, 3)
    plain: dict[str, Any]
    plain, flat, half, two, special = {}, {"flatten": True}, {"halves": True}, {"together": 2}, {"specialize": True}
    high = {"group": 32}
    for bm, bn, warps, stages, hints in (
        *((128, 256, 8, 3, h) for h in (flat, half, flat | half)),
        *((128, 192, 8, 4, h) for h in (plain, flat)),
        *((128, 192, 4, 4, h) for h in (plain, high)),
        (128, 160, 8, 4, plain),
        *((128, 128, 8, 4, h) for h in (plain, flat)),
        *((128, 128, 8, 3, two | h) for h in (plain, half)),
        *((128, 128, 4, 3, two | h) for h in (plain, half, flat, flat | high)),
        (128, 64, 4, 4, {"together": 3}),
        (256, 128, 8, 3, plain),
        *((m, n, 8, 3, plain) for m, n in ((256, 160), (256, 192), (128, 320), (128, 384))),
        *((m, n, 4, 3, special) for m, n in ((128, 256), (256, 128))),
        (128, 128, 4, 4, special),
    ):
        yield GemmTile(bm, bn, 64, warps, stages, descriptors=True, **hints)


def shallow_tiles(shape: Shape, device: Device) -> Iterator[GemmTile]:
    """Tiles of products with many rows that move more than they multiply: small ones, so that several programs of a
    multiprocessor wait for memory at different times."""
    fits = max(shape.n, 64)
    for (bm, bn), (bk, stages) in itertools.product(
        ((64, 64), (64, 128), (128, 64), (128, 128), (64, 256)), ((64, 3), (128, 2))
    ):
        if (
            bn <= fits
            and (bk <= shape.k or bk == 64)
            and (bm + bn) * bk * stages * 2 <= PRODUCT_SHARED * device.shared / 2
        ):
            yield GemmTile(bm, bn, bk, 4, stages)
    for bm, bn, warps, stages, together in (
        *((64, 128, 4, 3, 3), (128, 64, 4, 3, 3), (128, 128, 4, 3, 2), (128, 128, 8, 3, 2), (128, 128, 8, 4, 1)),
        (128, 256, 8, 3, 1),
    ):
        if bn <= fits:
            yield GemmTile(bm, bn, 64, warps, stages, descriptors=True, together=together)
    for bn in (128, 256):
        if bn <= fits:
            yield GemmTile(128, bn, 64, 8, 3)
            yield GemmTile(128, bn, 64, 4, 3, descriptors=True, specialize=True)


def conv_tiles(node: Conv, device: Device) -> tuple[GemmTile, ...]:
    """The tiles that the model of waves ranks first; window of one pixel with many pixels: descriptors too."""
    shape = conv_shape(node)
    found = []
    for bm, bn, bk, split in itertools.product((32, 64, 128), (32, 64, 128, 256), (32, 64, 128), (1, 2, 3, 4, 6, 8)):
        steps = -(-shape.k // (bk * split))
        fits = bn <= max(shape.n, 32) and (bm == 32 or bm < 2 * shape.m) and 32 * 32 < bm * bn <= 128 * 256
        if not fits or (split > 1 and steps < 2) or (bk == 32 and shape.k >= 256) or (bk == 128 and bm * bn > 64 * 128):
            continue
        stages = max(2, min(4, int(CONV_SHARED * device.shared // ((bm + bn) * bk * 2))))
        found.append(GemmTile(bm, bn, bk, 8 if bm * bn >= 128 * 128 else 4, stages, split))
    found.sort(key=lambda tile: estimate(shape, "bf16", tile, device))
    kept = found[:8]
    if as_gemm(node) is not None and shape.m > 2048 and shape.k >= 64:
        kept += [GemmTile(128, bn, 64, 8, 4, descriptors=True) for bn in (64, 128, 256) if bn <= shape.n]
    if shape.m > 1000:
        sizes = ((64, 128), (128, 64), (64, 256), (128, 128), (64, 64))
        kept += [GemmTile(m, n, k, 4, s) for m, n in sizes for k, s in ((64, 4), (128, 3)) if n <= max(shape.n, 64)]
        kept += [GemmTile(128, n, 64, 8, 3) for n in (128, 256) if n <= shape.n]
    return tuple(dict.fromkeys(kept))


def attention_tiles(queries: int, keys: int, head: int, split: bool) -> Iterator[AttentionTile]:
    """Tiles of an attention; split: few queries, whose keys several programs share."""
    if split:
        for bn, stages, s in itertools.product((64, 128), (2, 3), (1, 4, 8)):
            yield AttentionTile(16, bn, 4, stages, s)
        return
    for bm, bn, warps, stages in (
        *((16, 128, 4, 2), (32, 128, 4, 2), (64, 128, 4, 2), (32, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2)),
        *((64, 128, 4, 3), (128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 8, 4)),
    ):
        if (bm < 64 and queries >= 512) or (bm == 128 and queries <= 128) or bn * 2 > 3 * keys:
            continue
        yield AttentionTile(bm, bn, warps, stages)
        if queries > 256:
            yield AttentionTile(bm, bn, warps, stages, descriptors=True)
