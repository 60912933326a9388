"""The facts of GPUs that schedules, tiles and launches are chosen by: a row for each chip.

A number is the maker's unless its comment says that it was measured. What was measured was measured on an H200; the
other rows have the same share of their maker's number where nothing else is known, and the comment says so.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...runtime.errors import CompileError
from .gpu_programs import (
    ATTENTION,
    FUSIONS,
    GRADIENTS,
    LANES,
    MAPS,
    PIECES,
    PIXELS,
    PRODUCTS,
    QUANTISED,
    ROUTINES,
    ROWS,
    SPLITS,
    AttentionFacts,
    FusionFacts,
    GradientFacts,
    LaneFacts,
    MapFacts,
    PieceFacts,
    PixelFacts,
    ProductFacts,
    QuantisedFacts,
    RoutineFacts,
    RowFacts,
    SplitFacts,
)
from .targets import Target

# facts of every chip from sm_80 on (CUDA C++ Programming Guide, compute capabilities)
#: threads of a warp
WARP = 32
#: warps that share a warpgroup's tensor-core instruction
GROUP_WARPS = 4
#: warps of a program at most
MOST_WARPS = 32
#: 32-bit registers of a multiprocessor
REGISTERS = 65536
#: bytes of a line of L2, which a load that is whole in one moves at once; and bytes of one access of a thread at most
LINE, ACCESS = 128, 16
#: rows and columns that a tensor core's instruction takes at least, and rows that one of a warpgroup takes
TENSOR_CORE_TILE, GROUP_ROWS = 16, 64
#: rows of a tile of which specialized warps take half each, with as many warps
SPECIALIZED_ROWS, SPECIALIZED_WARPS = 128, 4
#: capability from which tensor cores multiply float8 (PTX ISA, mma)
FLOAT8 = 90
#: products of bf16 that take as long as one of float32: of tf32, which has half the roof, in three parts or in one
FLOAT32_PRODUCTS = {"tf32x3": 6, "tf32": 2}

#: rows and columns of a tile of a product -> the part of the roof that it reaches
TileRates: TypeAlias = tuple[tuple[tuple[int, int], float], ...]
#: on tensor cores, of the roof of bf16; fitted to tiles measured on an H200. The other chips have the same shares of
#: their roofs, as nothing else is known.
HALF_TILES: TileRates = (
    ((128, 256), 0.70),
    ((128, 128), 0.71),
    ((64, 256), 0.54),
    ((128, 64), 0.87),
    ((64, 128), 0.98),
    ((64, 64), 0.43),
    ((128, 32), 0.51),
    ((64, 32), 0.50),
    ((32, 128), 0.76),
    ((32, 64), 0.25),
    ((16, 64), 0.14),
    ((16, 32), 0.08),
)
#: the same for float32 in multiply-adds
FLOAT_TILES: TileRates = (
    ((128, 128), 0.060),
    ((128, 64), 0.055),
    ((64, 64), 0.050),
    ((64, 32), 0.035),
    ((32, 32), 0.025),
    ((16, 32), 0.012),
)


@dataclass(frozen=True)
class Device:
    """A GPU to generate for.

    Attributes:
        name: what `codegen.gpu` and the manifest call it.
        capability: compute capability times 10: 90 of sm_90.
        sms: multiprocessors.
        shared: bytes of shared memory that one program may have.
        l2: bytes of the second cache.
        tflops: roof of dense bf16 products, in 10^12 operations a second.
        bandwidth: of memory, in 10^12 bytes a second.
        additions: roof of float32 additions, in 10^12 a second.
        l2_speed: bandwidth of L2, in that of memory.
        reached: share of `additions` and `bandwidth` that kernels of elements reach.
        launch: microseconds of a launch behind another one.
        startup, latency: microseconds to start a program, and from memory to the first use.
        gather, gather_part: microseconds to add the parts of a tile that programs share, and for each part.
        step, step_column: microseconds of a step of a product of few rows and quantised weights that does not wait for
            memory, and for each column of its tile.
        together: such programs of a multiprocessor that take no longer than one.
        half_tiles, float_tiles: the tiles that products may have, and the part of the roof that each reaches.
        full: programs for each multiprocessor that fill the chip.
        crowd: programs for each multiprocessor that leave room for those of the next kernel.
        pdl: kernels may be launched before their predecessor has ended (griddepcontrol, from sm_90 on).
        float32: how float32 products are made: "ieee", "tf32x3" (three tf32 products: as exact and three times
            faster, see docs/decisions/0009) or "tf32".
        many: elements of a kernel from which a thread takes more of them: so many programs that what counts is the
            loads that are under way.
        maps, rows, pieces, lanes, products, quantised, routines, attention, gradients: how much a program takes, by
            kind of kernel.
        splits, fusions: what is split over programs, and what one kernel computes for another.
    """

    name: str
    capability: int
    sms: int
    shared: int
    l2: int
    tflops: float
    bandwidth: float
    additions: float
    pdl: bool = False
    # measured on an H200 with the products of docs/gpu-tiles.md; nothing else is known of the other chips
    l2_speed: float = 2.6
    reached: float = 0.85
    launch: float = 1.0
    startup: float = 0.92
    latency: float = 0.70
    gather: float = 1.33
    gather_part: float = 0.40
    step: float = 0.2  # fitted to the products of bench/quantized_gpu.py --sections kernels
    step_column: float = 0.06 / 32
    together: int = 3
    half_tiles: TileRates = HALF_TILES
    float_tiles: TileRates = FLOAT_TILES
    # measured on an H200 (docs/decisions/0056)
    full: int = 4
    crowd: int = 4
    float32: str = "tf32x3"
    # measured on an H200 (gpu_programs.py)
    many: int = 1 << 23
    maps: MapFacts = MAPS
    rows: RowFacts = ROWS
    pieces: PieceFacts = PIECES
    lanes: LaneFacts = LANES
    products: ProductFacts = PRODUCTS
    pixels: PixelFacts = PIXELS
    quantised: QuantisedFacts = QUANTISED
    routines: RoutineFacts = ROUTINES
    attention: AttentionFacts = ATTENTION
    gradients: GradientFacts = GRADIENTS
    splits: SplitFacts = SPLITS
    fusions: FusionFacts = FUSIONS

    @property
    def bytes_a_microsecond(self) -> float:
        """Of memory: `bandwidth` in the unit in which kernels are reckoned."""
        return self.bandwidth * 1e6

    @property
    def additions_a_microsecond(self) -> float:
        """Of float32: `additions` in the unit in which kernels are reckoned."""
        return self.additions * 1e6

    @property
    def descriptors(self) -> bool:
        """Whether tensor descriptors are instructions of the chip."""
        return self.capability >= 90

    @property
    def operands_room(self) -> int:
        """Bytes of shared memory for the operands of a program; the rest is for barriers and for what Triton adds."""
        return int(self.shared * 0.9)

    def leaves_room(self, programs: int) -> bool:
        """Whether the next kernel's programs may take their places while so many programs run.

        They wait there for the end of this kernel. Few programs leave every multiprocessor room for them; beside many
        they settle where some end first, and lie unevenly when they begin (docs/decisions/0056).
        """
        return programs <= self.crowd * self.sms


KIB, MIB = 1 << 10, 1 << 20

A100 = Device("a100", 80, 108, 163 * KIB, 40 * MIB, 312, 2.0, 9.7)  # A100 SXM, 80 GB
# H100 SXM, 80 GB: an H200 but for its memory, of 3.35 TB/s; of an H200's 4.8 TB/s, 4.3 were measured
H100 = Device("h100", 90, 132, 227 * KIB, 50 * MIB, 790, 3.0, 29.0, pdl=True)
# H200 SXM: tflops, bandwidth and additions are measured (docs/gpu-tiles.md); the maker's are 989, 4.8 and 33.5
H200 = Device("h200", 90, 132, 227 * KIB, 50 * MIB, 790, 4.3, 29.0, pdl=True)
B200 = Device("b200", 100, 148, 227 * KIB, 126 * MIB, 2250, 8.0, 35.0, pdl=True)

CHIPS: tuple[Device, ...] = (A100, H200, H100, B200)
#: capability -> the chip that code is made for where the user names none: the first of CHIPS
DEVICES = {chip.capability: chip for chip in reversed(CHIPS)}


def device_of(capability: int) -> Device:
    """The numbers of the nearest chip that is not newer."""
    known = [c for c in DEVICES if c <= capability]
    return DEVICES[max(known, default=80)]


def device_for(target: Target, tf32: bool = False, chips: Sequence[str] = ()) -> Device:
    """The device that a target's kernels are made for.

    tf32: products of float32 may round their operands. chips: names of those to make code for; of the ones with the
    target's capability the first counts.
    """
    named = (chip_of(name) for name in chips)
    device = next((c for c in named if c.capability == target.capability and not target.ptx), None)
    device = device or device_of(target.capability)
    return replace(device, float32="tf32") if tf32 else device


def chip_of(name: str) -> Device:
    """The row of a chip by its name.

    Raises:
        CompileError: no row has that name.
    """
    for chip in CHIPS:
        if chip.name == name.lower():
            return chip
    known = [chip.name for chip in CHIPS]
    near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    hint = f"Did you mean {near[0]}?" if near else f"GPUs: {', '.join(known)}."
    raise CompileError(f"option codegen.gpu names no GPU that mycc knows: '{name}'", hint=hint)
