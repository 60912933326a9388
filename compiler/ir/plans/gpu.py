"""The plans of GPU kernels: a class for each kind of kernel. Counts are of elements where nothing else is said."""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Load
from ..index import Index, Var
from .tiles import AttentionTile, GemmTile


@dataclass(frozen=True)
class GpuPlan:
    """What all plans have.

    form: which of the kernels of its kind. warps: of a program. stages: steps whose loads are under way. registers: of
    a thread at most, None for what the compiler takes. pdl: the kernel may begin before its predecessor has ended.
    room: it lets the next kernel begin early, as its programs leave room for it.
    """

    form: str = ""
    warps: int = 0
    stages: int = 2
    registers: int | None = None
    pdl: bool = False
    room: bool = True


@dataclass(frozen=True)
class MapPlan(GpuPlan):
    """Of a map. forms:

    flat        a program has block[0] elements of all loops in one
    transpose   a program has a tile: block[0] of the loop axes[0], which is written side by side, and block[1] of
                axes[1], which is read side by side
    rows        the same, with all other loops in one as the second axis
    """

    axes: tuple[Var, ...] = ()
    block: tuple[int, ...] = ()


@dataclass(frozen=True)
class PiecesPlan:
    """How a long row is cut into whole pieces and a tile of what is left.

    size: of a piece. start, unit: pieces begin at the next multiple of `unit` elements behind the row's start; None
    where the row begins at one. held: elements of the row that stay in registers. apart: every stage widens what is
    held in a way of its own, so that two programs have room.
    """

    size: int
    start: Index | None = None
    unit: int = 0
    held: tuple[Load, ...] = ()
    apart: bool = False


@dataclass(frozen=True)
class RowsPlan(GpuPlan):
    """Of reductions, and of nests over rows. forms:

        held     a program holds `rows` rows in registers
        walked   a program walks through `rows` rows, a block of each at a time
        lanes    a lane walks through a row by itself, `rows` of them side by side
        pieces   a program walks through one row in whole pieces: see PiecesPlan

    blocks: elements of a row at a time, a number for each stage of the row form. places: for each reduction in rows
    that are held, how the place of an extremum is found: "keys" (one maximum of integers with value and place), "units"
    (the first run of `unit` elements that has it, then where it is there) or "tile". ahead: for each stage, blocks that
    are under way where the compiler is told so, else 0. unrolled: for each stage, whether its steps are unrolled.
    """

    rows: int = 1
    blocks: tuple[int, ...] = ()
    places: tuple[str, ...] = ()
    unit: int = 8
    ahead: tuple[int, ...] = ()
    unrolled: tuple[bool, ...] = ()
    pieces: PiecesPlan | None = None


@dataclass(frozen=True)
class ScanPlan(GpuPlan):
    """Of a scan. forms:

    steps   a lane takes the steps of its row in order; a program has `rows` lanes
    rows    a program scans `rows` rows, `block` steps at once
    """

    rows: int = 1
    block: int = 1


@dataclass(frozen=True)
class ScatterPlan(GpuPlan):
    """Of a scatter. fill: of the kernel that fills the result in front of the updates. forms:

    ordered  a program has `block` updates that may be made in any order, and makes those behind each in order
    last     a program has `block` updates of one step, and makes them where no later step leads to the same place: it
             compares its indices with `ahead` later ones at once
    """

    block: int = 1
    ahead: int = 1
    fill: MapPlan | None = None


@dataclass(frozen=True)
class ProductPlan(GpuPlan):
    """Of a matrix product or a convolution. forms:

        tile        a program computes a tile, or shares it with others (tile.split)
        persistent  `walkers` programs walk over tiles, whose operands come through tensor descriptors
        vector      one row, multiplied without tensor cores
        planes      weights by groups, or of 4 bits: a step is a run of k for each plane (ir/layouts.py)
        taps        a convolution as a product, whose steps go over the channels of one tap
        flat        the same, whose steps go over taps and channels together
        depthwise   windows of single channels

    A convolution whose window is one pixel has a form of the first three. order: of tiles: "rows" (row by row) or
    "groups" (of tile.group rows). prefetch: weights are asked for before the predecessor
    has ended. precision: how float32 products are made (Device.float32). promoted: products of float8 that tensor cores
    sum with fewer digits before the sum is added to a float32; 0: there are no such products. ahead: steps of the form
    for vectors whose loads are under way; 0: those of one step.
    """

    ahead: int = 0
    promoted: int = 0
    tile: GemmTile | None = None
    walkers: int = 0
    order: str = ""
    prefetch: bool = False
    precision: str = ""

    @property
    def cut(self) -> GemmTile:
        """The tile, where it is decided."""
        assert self.tile is not None
        return self.tile


@dataclass(frozen=True)
class AttentionPlan(GpuPlan):
    """Of an attention. forms:

        heads    a tile has queries of one head
        packed   a tile has the queries of all heads that share a key head

    single: the keys are one step. precision: as of ProductPlan.
    """

    tile: AttentionTile | None = None
    single: bool = False
    precision: str = ""

    @property
    def cut(self) -> AttentionTile:
        """The tile, where it is decided."""
        assert self.tile is not None
        return self.tile


@dataclass(frozen=True)
class PartPlan(GpuPlan):
    """Of a launch of a routine. block: elements of a program. step: of those that are compared at once. run: length of
    the sorted runs that it takes, or elements of the one program of a short mask. shares: programs that the work is
    cut into, or passes of a Fourier transform in the kernel. tiles: powers of two that hold a matrix."""

    block: int = 0
    step: int = 0
    run: int = 0
    shares: int = 1
    tiles: tuple[int, ...] = ()


@dataclass(frozen=True)
class RoutinePlan(GpuPlan):
    """Of a routine, whose launches have a plan each: parts."""

    parts: tuple[PartPlan, ...] = ()
