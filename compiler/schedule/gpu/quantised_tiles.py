"""Tiles of products whose weights are quantised."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ....runtime.errors import CompileError
from ...ir.index import ONE
from ...ir.layouts import row_words
from ...ir.plans.tiles import GemmTile
from ...ir.structured import Gemm, Quantised
from ...machine.gpu import FLOAT8, LINE, TENSOR_CORE_TILE, Device
from .fit import misfit
from .tiles import Shape, gemm_shape, vector_tile


def quantised_tile(node: Gemm, how: Quantised, device: Device, shape: Shape | None = None) -> GemmTile:
    """The tile of a product of quantised weights. shape: as of gemm_tile().

    Raises:
        CompileError: the device has no tensor cores for these numbers.
    """
    if how.float8 and device.capability < FLOAT8:
        raise CompileError(
            f"products of float8 need tensor cores of sm_{FLOAT8} or newer, and the target is sm_{device.capability}",
            details=[node.origin.describe()],
            hint="Quantise to int8 for this GPU.",
        )
    shape = shape or gemm_shape(node)
    if node.also:
        return _pair(shape, node, device)
    if how.group:
        return _of_groups(shape, how, node, device)
    if shape.m == 1 and node.dims[-2].extent == ONE and _row_by_row(shape, node, device):
        return row_tile(shape, device)
    if shape.m <= device.quantised.few_rows:
        step = LINE if shape.k >= 2 * LINE else max(2 * TENSOR_CORE_TILE, 1 << max(shape.k - 1, 0).bit_length())
        return _few_rows(shape, step, step, -(-shape.k // step), device)
    walking = _walking(node, shape, device)
    return walking or _many_rows(shape, node, device, 1 if shape.k < 2 * LINE else 2)


def _of_groups(shape: Shape, how: Quantised, node: Gemm, device: Device) -> GemmTile:
    """Steps are parts of a run of k, or of a group."""
    step = how.run or min(LINE, how.group & -how.group)
    words = row_words(shape.k, how.run) if how.run else shape.k
    if shape.m <= device.quantised.few_rows:
        return _few_rows(shape, step, step * (2 if how.run else 1), -(-words // step), device)
    many = _many_rows(shape, node, device, 1)
    return replace(many, k=min(step, device.quantised.group_steps[how.run > 0]))


def _few_rows(shape: Shape, step: int, line: int, steps: int, device: Device) -> GemmTile:
    """The tile of few rows that takes the least time by the model. line: bytes of a column in a step."""
    tiles, facts = [], device.quantised
    for n, split in itertools.product(facts.narrow, facts.splits):
        crowded = n < facts.narrow[0] and -(-shape.n // facts.narrow[0]) >= facts.crowd * device.sms
        if not crowded and (split == 1 or steps >= split * facts.least_steps):
            tiles.append(GemmTile(TENSOR_CORE_TILE, n, step, facts.few_warps, facts.stages, split))
    return min(tiles, key=lambda t: (few_rows_time(shape, t, line, steps, device), t.split, t.n))


def few_rows_time(shape: Shape, tile: GemmTile, line: int, steps: int, device: Device) -> float:
    """Microseconds of a product of few rows: of its programs' steps or of its weights, and of the sums they share.

    Fitted to the products of bench/quantized_gpu.py --sections kernels on an H200.
    """
    programs = -(-shape.n // tile.n) * tile.split
    own = -(-steps // tile.split) * (device.step + device.step_column * tile.n)
    computed = own * max(1.0, programs / (device.together * device.sms))
    sums = 4.0 * tile.m * shape.n * tile.split if tile.split > 1 else 0.0
    stream = float(shape.n * steps * line)
    speed = device.bytes_a_microsecond
    return device.startup + device.latency + max(computed, stream / speed) + sums / speed


def _row_by_row(shape: Shape, node: Gemm, device: Device) -> bool:
    """Whether one row is multiplied without tensor cores."""
    facts = device.quantised
    wide = -(-shape.n // facts.narrow[0]) >= facts.wide_row * device.sms
    return node.a_dtype in ("f32", "f16", "bf16") and not wide


def row_tile(shape: Shape, device: Device) -> GemmTile:
    """The tile of one row of floats and weights of bytes."""
    tile = vector_tile(shape, device)
    n = tile.n
    while n > device.products.least_row_columns and -(-shape.n // n) < device.quantised.row_filling * device.sms:
        n //= 2
    return replace(tile, n=n, stages=device.quantised.stages)


def _many_rows(shape: Shape, node: Gemm, device: Device, lines: int) -> GemmTile:
    """A tile of tensor cores for programs that compute one each."""
    facts = device.quantised
    n = facts.tile if shape.n > facts.narrow_tile else facts.narrow_tile
    m = facts.tile
    while m > 2 * TENSOR_CORE_TILE and (m >= 2 * shape.m or -(-shape.m // m) * -(-shape.n // n) < device.sms):
        m //= 2
    step = dict(facts.steps).get(node.a_dtype, facts.byte_step * lines)
    return GemmTile(m, n, step, facts.warps if m == facts.tile else facts.few_warps, facts.stages)


def _pair(shape: Shape, node: Gemm, device: Device) -> GemmTile:
    """The tile of two products, each of half the columns that one of both would have."""
    one = replace(node, also=())
    tile = _walking(one, shape, device) or _many_rows(shape, node, device, 1 if shape.k < 2 * LINE else 2)
    return replace(tile, n=max(2 * TENSOR_CORE_TILE, tile.n // (1 << len(node.also).bit_length())))


def _walking(node: Gemm, shape: Shape, device: Device) -> GemmTile | None:
    """The tile of programs that walk over many tiles of bytes times bytes; None where they cannot. Sums of float8 that
    are added to others take registers of their own."""
    how = node.quantised
    promoted = how is not None and how.float8 and not how.fast
    facts = device.quantised
    tile = facts.promoted if promoted else facts.walking
    large = shape.m >= facts.many_rows and shape.n >= facts.many_columns and shape.k >= facts.many_deep
    return tile if large and not misfit(node, tile) else None
