"""The plans of GPU kernels: a class for each kind of kernel. Counts are of elements where nothing else is said."""

from __future__ import annotations

from dataclasses import dataclass

from ..buffers import Buffer
from ..expr import Expr, Load
from ..index import Index, Var
from ..nodes import Map, Reduce
from .tiles import AttentionTile, GemmTile


@dataclass(frozen=True)
class GpuPlan:
    """What all plans have.

    form: which of the kernels of its kind. warps: of a program. stages: steps whose loads are under way. registers: of
    a thread at most, None for what the compiler takes. pdl: the kernel may begin before its predecessor has ended.
    room: it lets the next kernel begin early, as its programs leave room for it. wide: indices are of 64 bits. flush:
    exponentials take numbers below the normal ones for zero. fuses: a product and a sum may be rounded once. widens:
    the build may give it more warps on a chip whose registers do not suffice.
    """

    form: str = ""
    warps: int = 0
    stages: int = 2
    registers: int | None = None
    pdl: bool = False
    room: bool = True
    wide: bool = False
    flush: bool = False
    fuses: bool = True
    widens: bool = True


@dataclass(frozen=True)
class MapPlan(GpuPlan):
    """Of a map, whose node has its adjacent loops fused. forms:

    flat        a program has block[0] elements of all loops in one
    transpose   a program has a tile: block[0] of the loop axes[0], which is written side by side, and block[1] of
                axes[1], which is read side by side
    rows        the same, with all other loops in one as the second axis
    """

    axes: tuple[Var, ...] = ()
    block: tuple[int, ...] = ()

    @property
    def both(self) -> bool:
        """Whether a tile has elements along both axes."""
        return self.block[-1] > 1


@dataclass(frozen=True)
class PiecesPlan:
    """How a long row is cut into whole pieces and a tile of what is left.

    size: of a piece. count: pieces of a row. rest: lanes of the tile of what is left, 0 of nothing. start, unit: pieces
    begin at the next multiple of `unit` elements behind the row's start; None where the row begins at one. held:
    elements of the row that stay in registers. apart: every stage widens what is held in a way of its own, so that two
    programs have room; widenings: for each stage its way, None where it widens nothing. pairs: numbers of the stages
    that find the largest of two elements at once. scales: values of a row that multiply weights of a softmax, by their
    logarithms.
    """

    size: int
    count: int = 0
    rest: int = 0
    start: Index | None = None
    unit: int = 0
    held: tuple[Load, ...] = ()
    apart: bool = False
    widenings: tuple[int | None, ...] = ()
    pairs: tuple[int, ...] = ()
    scales: tuple[Load, ...] = ()


@dataclass(frozen=True)
class RowStage:
    """A stage in terms of the row and its column loop; None: one value for each row."""

    node: Map | Reduce
    column: Var | None


@dataclass(frozen=True)
class RowForm:
    """A node as stages over rows. row: the flat loop over the rows, None when there is just one; whole: a row may be
    held in registers."""

    row: Var | None
    stages: tuple[RowStage, ...]
    locals: tuple[Buffer, ...]
    whole: bool

    def __str__(self) -> str:
        rows = "1" if self.row is None else str(self.row.extent)
        columns = ", ".join("a value" if s.column is None else str(s.column.extent) for s in self.stages)
        return f"{rows} rows of {columns}"


@dataclass(frozen=True)
class RowsPlan(GpuPlan):
    """Of reductions, and of nests over rows. forms:

        held     a program holds `rows` rows in registers
        walked   a program walks through `rows` rows, a block of each at a time
        lanes    a lane walks through a row by itself, `rows` of them side by side
        pieces   a program walks through one row in whole pieces: see PiecesPlan

    nest: the stages with their loops flattened to a row and a column. blocks: elements of a row at a time, a number for
    each stage. early: weights that are loaded before the predecessor has ended. places: for each reduction in rows
    that are held, how the place of an extremum is found: "keys" (one maximum of integers with value and place), "units"
    (the first run of `unit` elements that has it, then where it is there) or "tile". ahead: for each stage, blocks that
    are under way where the compiler is told so, else 0. unrolled: for each stage, whether its steps are unrolled.
    """

    nest: RowForm | None = None
    rows: int = 1
    blocks: tuple[int, ...] = ()
    places: tuple[str, ...] = ()
    unit: int = 8
    ahead: tuple[int, ...] = ()
    unrolled: tuple[bool, ...] = ()
    early: tuple[Load, ...] = ()
    pieces: PiecesPlan | None = None

    @property
    def stages_of_rows(self) -> RowForm:
        """The row form, where it is decided."""
        assert self.nest is not None
        return self.nest

    @property
    def several(self) -> bool:
        """Whether a program has more than one row."""
        return self.rows > 1

    @property
    def counted(self) -> tuple[bool, ...]:
        """For each stage, whether its elements are taken one by one."""
        return tuple(block == 1 for block in self.blocks)


@dataclass(frozen=True)
class Combination:
    """How two neighbouring stretches of a scan make one.

    values: what a step alone gives, for each carry. function: of functions.py.j2. scan: Triton's own scan, if any.
    """

    values: tuple[Expr, ...]
    function: str
    scan: str = ""

    def __str__(self) -> str:
        return self.function


@dataclass(frozen=True)
class ScanPlan(GpuPlan):
    """Of a scan. forms:

    steps   a lane takes the steps of its row in order; a program has `rows` lanes
    rows    a program scans `rows` rows, `block` steps at once

    combination: how stretches of a row are put together in the form rows.
    """

    combination: Combination | None = None
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

    A convolution whose window is one pixel is a product. order: of tiles: "row" (there is one row of them), "column"
    (there is one column), "rows" (row by row) or "groups" (of tile.group rows). prefetch: weights are asked for before
    the predecessor has ended. precision: how float32 products are made (Device.float32). promoted: products of float8
    that tensor cores sum with fewer digits before the sum is added to a float32; 0: there are no such products. ahead:
    steps of the form for vectors whose loads are under way; 0: those of one step.
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
class SeenKeys:
    """Where the keys lie that a row of an attention may see (decision 0125). begins: the first key; ends: one past the
    last; of each condition of its mask, in i64, none outside of the keys."""

    begins: tuple[Expr, ...] = ()
    ends: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class AttentionPlan(GpuPlan):
    """Of an attention. forms:

        heads    a tile has queries of one head
        packed   a tile has the queries of all heads that share a key head

    head, value: elements of a row of keys and of values, with those that fill a tile. order: of tiles, "late first"
    where the last ones see the most keys. queries: they come through a tensor descriptor, too. single: the keys are one
    step. seen: a tile reads the blocks of keys alone that comparisons in the score show to one of its rows; None: all.
    precision: as of ProductPlan.
    """

    tile: AttentionTile | None = None
    head: int = 0
    value: int = 0
    order: str = ""
    queries: bool = False
    single: bool = False
    seen: SeenKeys | None = None
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
    cut into, or passes of a Fourier transform in the kernel. tiles: powers of two that hold a matrix. places: bits of
    an integer that counts the elements of two runs."""

    block: int = 0
    step: int = 0
    run: int = 0
    shares: int = 1
    tiles: tuple[int, ...] = ()
    places: int = 32


@dataclass(frozen=True)
class RoutinePlan(GpuPlan):
    """Of a routine, whose launches have a plan each: parts. refused: why GPUs do not compute it; "": they do."""

    parts: tuple[PartPlan, ...] = ()
    refused: str = ""
