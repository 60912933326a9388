"""Tiles of products whose weights are quantised."""

from __future__ import annotations

from dataclasses import replace

from ....runtime.errors import CompileError
from ...ir.index import ONE
from ...ir.layouts import row_words
from ...ir.plans.tiles import GemmTile
from ...ir.structured import Gemm, Quantised
from ...machine.gpu import LINE, TENSOR_CORE_TILE, Device
from .fit import misfit
from .tiles import Shape, gemm_shape, vector_tile

#: rows up to which a product is bound by its weights, which are then read by as many programs as fill the chip
FEW_ROWS = 16
#: columns of a tile of few rows; programs for each multiprocessor that fill it; steps that a program has at least
NARROW, FILLING, LEAST_STEPS = 64, 2, 2
MOST_PARTS = 8
#: rows from which programs walk over tiles
MANY_ROWS = 1024
#: capability from which tensor cores multiply float8
FLOAT8 = 90


def quantised_tile(node: Gemm, how: Quantised, device: Device) -> GemmTile:
    """The tile of a product of quantised weights.

    Raises:
        CompileError: the device has no tensor cores for these numbers.
    """
    if how.float8 and device.capability < FLOAT8:
        raise CompileError(
            f"products of float8 need tensor cores of sm_{FLOAT8} or newer, and the target is sm_{device.capability}",
            details=[node.origin.describe()],
            hint="Quantise to int8 for this GPU.",
        )
    shape = gemm_shape(node)
    if how.group:
        return _of_groups(shape, how, node, device)
    if shape.m == 1 and node.dims[-2].extent == ONE and node.a_dtype in ("f32", "f16", "bf16"):
        return vector_tile(shape, device)
    if shape.m <= FEW_ROWS:
        step = LINE if shape.k >= 2 * LINE else max(2 * TENSOR_CORE_TILE, 1 << max(shape.k - 1, 0).bit_length())
        return _few_rows(shape, step, -(-shape.k // step), device)
    walking = _walking(node, shape)
    return walking or _many_rows(shape, node, device, 1 if shape.k < 2 * LINE else 2)


def _of_groups(shape: Shape, how: Quantised, node: Gemm, device: Device) -> GemmTile:
    """Steps are parts of a run of k, or of a group."""
    step = how.run or min(LINE, how.group & -how.group)
    words = row_words(shape.k, how.run) if how.run else shape.k
    if shape.m <= FEW_ROWS:
        return _few_rows(shape, step, -(-words // step), device)
    many = _many_rows(shape, node, device, 1)
    return replace(many, k=min(step, 32 if how.run else 64))


def _few_rows(shape: Shape, step: int, steps: int, device: Device) -> GemmTile:
    """Programs that fill the chip, each with some of the weights."""
    n = NARROW
    split = 1
    while split < MOST_PARTS and -(-shape.n // n) * split < FILLING * device.sms and steps >= 2 * split * LEAST_STEPS:
        split *= 2
    return GemmTile(TENSOR_CORE_TILE, n, step, 4, 4, split)


def _many_rows(shape: Shape, node: Gemm, device: Device, lines: int) -> GemmTile:
    """A tile of tensor cores for programs that compute one each."""
    n = 128 if shape.n > 64 else 64
    m = 128
    while m > 2 * TENSOR_CORE_TILE and (m >= 2 * shape.m or -(-shape.m // m) * -(-shape.n // n) < device.sms):
        m //= 2
    step = 64 if node.a_dtype in ("f16", "bf16") else 32 if node.a_dtype == "f32" else 64 * lines
    return GemmTile(m, n, step, 8 if m == 128 else 4, 3)


def _walking(node: Gemm, shape: Shape) -> GemmTile | None:
    """The tile of programs that walk over many tiles of bytes times bytes; None where they cannot."""
    tile = GemmTile(128, 256, 128, 8, 3, descriptors=True)
    fits = shape.m >= MANY_ROWS and shape.n >= 256 and shape.k >= 512 and not misfit(node, tile)
    return tile if fits else None
