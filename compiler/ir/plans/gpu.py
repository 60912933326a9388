"""The plans of GPU kernels: a class for each kind of kernel. Counts are of elements where nothing else is said."""

from __future__ import annotations

from dataclasses import dataclass

from ..buffers import Buffer
from ..dtypes import DTYPES
from ..expr import Expr, Load
from ..index import ONE, Index, Var, minimum
from ..nodes import Map, Reduce
from ..structured import Gemm
from .tiles import AttentionTile, GemmTile


@dataclass(frozen=True)
class GpuPlan:
    """The fields of every plan.

    form: the kernel template of its kind. warps: how many warps a program has. stages: how many steps of the loop have
    loads in flight (software pipelining). registers: the limit for a thread; None: the compiler decides. pdl: the
    kernel may start before its predecessor has ended (programmatic dependent launch). room: it lets the next kernel
    start early, because its programs leave resources free. wide: indices have 64 bits. flush: exponentials flush
    subnormal numbers to zero. fuses: a multiplication and an addition may become one FMA. widens: the build may double
    the warps on a chip with too few registers.
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
    """The plan of a map, whose adjacent loops are fused. Its forms:

    flat        all loops are one, and a program computes block[0] elements of it
    transpose   a program computes a tile: block[0] iterations of axes[0], along which stores are contiguous, and
                block[1] iterations of axes[1], along which loads are contiguous
    rows        the same, where the second axis is all other loops in one

    fours: random words are made four at a time, for neighbouring elements (ir/fours.py). together: neighbours that say
    so, too, are one launch, with the warps of the widest.
    """

    axes: tuple[Var, ...] = ()
    block: tuple[int, ...] = ()
    fours: bool = False
    together: bool = False

    @property
    def both(self) -> bool:
        """Whether a tile has several elements along the second axis."""
        return self.block[-1] > 1


@dataclass(frozen=True)
class PiecesPlan:
    """How a long row is divided into blocks of one size and a masked tile for the remainder.

    size: the elements of a block. count: the blocks of a row. rest: the lanes of the remainder's tile; 0: there is
    none. start, unit: the blocks begin at the first multiple of `unit` elements after the row's start; None where the
    row itself begins at one. held: the elements of the row that stay in registers. apart: each stage converts the held
    elements to float32 anew, so that two programs fit into the registers; widenings: the spelling of this conversion
    for each stage, None where a stage converts nothing. pairs: the stages that take the maximum of two elements at
    once. scales: the values of a row that multiply the weights of a softmax; their logarithms are added to the
    exponents.
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
    """A stage over a row. column: its loop over the row; None: it computes one value for each row."""

    node: Map | Reduce
    column: Var | None


@dataclass(frozen=True)
class RowForm:
    """A node as stages over rows. row: the fused loop over the rows; None: there is one row. whole: registers may hold
    a row."""

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
    """The plan of reductions, and of nests over rows. Its forms:

        held     a program holds `rows` rows in registers
        walked   a program iterates over the blocks of `rows` rows at once
        lanes    each lane iterates over a row of its own; a program has `rows` lanes
        pieces   a program iterates over one row in blocks that need no mask: see PiecesPlan

    nest: the stages, whose loops are fused to one over the rows and one over the columns. blocks: how many elements of
    a row a step takes, for each stage. early: the weights that are loaded before the predecessor has ended. places: how
    each reduction of held rows finds an argmax index: "keys" (one maximum over integers that hold value and index),
    "units" (the first run of `unit` elements that holds the maximum, then its index in the run) or "tile". ahead: for
    each stage, how many blocks have loads in flight where the plan says so, else 0. unrolled: for each stage, whether
    its loop is unrolled.
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
    """The associative operator of a scan, which joins two neighbouring ranges of steps.

    values: the element of a single step, for each carry. function: its name in functions.py.j2. scan: the scan that
    Triton has built in; "": none.
    """

    values: tuple[Expr, ...]
    function: str
    scan: str = ""

    def __str__(self) -> str:
        return self.function


@dataclass(frozen=True)
class ScanPlan(GpuPlan):
    """The plan of a scan. Its forms:

    steps   a lane runs the steps of its row in order; a program has `rows` lanes
    rows    a program scans `rows` rows, `block` steps at a time

    combination: the associative operator of the form rows.
    """

    combination: Combination | None = None
    rows: int = 1
    block: int = 1


@dataclass(frozen=True)
class ScatterPlan(GpuPlan):
    """The plan of a scatter. fill: the plan of the kernel that fills the result before the updates. Its forms:

    ordered  a program has `block` updates that may run in any order; for each, it runs the inner loops in order
    last     a program has `block` updates of one step, and writes those whose element no later step writes: it compares
             their indices with `ahead` later ones at a time
    first    a program has `block` updates of one step; where no earlier step leads to their elements, it makes those of
             all later steps that do, in their order, and stores the elements once. Where more than `many` of `ahead`
             steps lead there, it adds the updates of `rows` steps at a time; 0: one by one
    """

    block: int = 1
    ahead: int = 1
    rows: int = 0
    many: int = 0
    fill: MapPlan | None = None


@dataclass(frozen=True)
class SizeRange:
    """The calls that a plan is for, by a size that they know: at least `least`, and below `below`; None: no bound."""

    size: Index
    least: int = 0
    below: int | None = None

    @property
    def holds(self) -> Index:
        """1 for a size in the range, else 0."""
        reached = minimum(self.size // self.least, 1) if self.least else ONE
        return reached if self.below is None else reached - minimum(self.size // self.below, 1)

    def __str__(self) -> str:
        low = f"{self.least} <= " if self.least else ""
        return f"{low}{self.size}" + ("" if self.below is None else f" < {self.below}")


@dataclass(frozen=True)
class Dequantise:
    """Weights that become floats in scratch memory before a product reads them: the map that writes `weights` with its
    plan, and the product."""

    node: Map
    plan: MapPlan
    product: Gemm
    weights: Buffer

    @property
    def bytes(self) -> Index:
        """Of the scratch memory."""
        return self.weights.size * DTYPES[self.weights.dtype].size

    def __str__(self) -> str:
        return f"to {self.weights.dtype}"


@dataclass(frozen=True)
class ProductPlan(GpuPlan):
    """The plan of a matrix product or a convolution. Its forms:

        tile        a program computes a tile, or a part of its k (tile.split)
        persistent  `walkers` programs iterate over the tiles; operands are loaded through tensor descriptors
        vector      a matrix of one row is multiplied without tensor cores
        planes      weights that are quantised by groups or to 4 bits: a step takes a part of k of each plane
                    (ir/layouts.py)
        taps        a convolution as an implicit GEMM whose steps iterate over the channels of one tap
        flat        the same, whose steps iterate over taps and channels together
        depthwise   a depthwise convolution without tensor cores
        pixels      the gradient of a convolution's weight, whose steps iterate over pixels; a tile lies within a tap
        pixels flat the same, with tiles of several taps

    A convolution with a window of one pixel is a product. order: the order of the tiles: "row" (there is one row of
    them), "column" (there is one column), "rows" (row by row) or "groups" (of tile.group rows). prefetch: weights are
    prefetched before the predecessor has ended. precision: the precision of float32 products (Device.float32).
    promoted: how many float8 products tensor cores add at their lower precision before the sum is added in float32; 0:
    there are no such products. ahead: how many steps of the form `vector` have loads in flight; 0: one step. variants:
    the plans of dynamic numbers of rows that another tile serves better, each with its range. range: of this plan;
    None: it is for all sizes. dequantise: a kernel makes floats of the weights first, and the product is another node.
    summed: rows and warps of a kernel of its own that sums the parts of tiles; no rows: the last program of a tile sums
    them. stored: columns that are stored of padded rows, whose padding nobody reads; 0: those that the result has.
    """

    ahead: int = 0
    promoted: int = 0
    tile: GemmTile | None = None
    walkers: int = 0
    order: str = ""
    prefetch: bool = False
    precision: str = ""
    range: SizeRange | None = None
    dequantise: Dequantise | None = None
    variants: tuple[ProductPlan, ...] = ()
    summed: tuple[int, int] = (0, 0)
    stored: int = 0

    @property
    def cut(self) -> GemmTile:
        """The tile, where it is decided."""
        assert self.tile is not None
        return self.tile


@dataclass(frozen=True)
class SeenKeys:
    """Where the keys lie that a row of an attention may see (decision 0125). begins: the first key; ends: one past the
    last; of each condition of its mask, in i64, none outside of the keys. shown: the score of keys between all begins
    and all ends, without the conditions that hold there; None: it is the same."""

    begins: tuple[Expr, ...] = ()
    ends: tuple[Expr, ...] = ()
    shown: Expr | None = None


@dataclass(frozen=True)
class AttentionPlan(GpuPlan):
    """The plan of an attention. Its forms:

        heads    the rows of a tile are queries of one head
        packed   the rows of a tile are the queries of all heads that share a key head

    head, value: the padded lengths of a row of keys and of values. rest: of a row of keys that is two blocks, the
    padded length of the second one. latent: values are the first elements of keys, which are read once. order: the
    order of the tiles, "late first" where the last ones attend to the most keys. queries: they are loaded through a
    tensor descriptor, too. single: one step takes all keys. seen: a tile reads only the blocks of keys that
    comparisons in the score leave visible to one of its rows; None: it reads all. folded: the scale is a factor of the
    exponents, as the score does nothing but hide keys. precision: as in ProductPlan.
    """

    tile: AttentionTile | None = None
    head: int = 0
    rest: int = 0
    value: int = 0
    latent: bool = False
    order: str = ""
    queries: bool = False
    single: bool = False
    seen: SeenKeys | None = None
    folded: bool = False
    precision: str = ""

    @property
    def cut(self) -> AttentionTile:
        """The tile, where it is decided."""
        assert self.tile is not None
        return self.tile


@dataclass(frozen=True)
class GradientPart(GpuPlan):
    """The plan of one launch of the gradient of attention. Its forms:

        whole     a program computes all three gradients of a key head, whose keys are one block
        queries   a program computes the gradient of a block of queries, and walks over the keys
        keys      a program computes the gradients of a block of keys and values, and walks over the queries

    order: "late first" where the last blocks of queries see the most keys, "" where the order is that of memory.
    """

    tile: AttentionTile | None = None
    order: str = ""
    seen: SeenKeys | None = None

    @property
    def cut(self) -> AttentionTile:
        """The tile, where it is decided."""
        assert self.tile is not None
        return self.tile


@dataclass(frozen=True)
class GradientPlan(GpuPlan):
    """The plan of the gradient of attention: `whole`, by one launch for all three gradients, or `apart`. parts: of its
    launches. head, value, seen, folded, precision: as in AttentionPlan."""

    head: int = 0
    value: int = 0
    seen: SeenKeys | None = None
    folded: bool = False
    precision: str = ""
    parts: tuple[GradientPart, ...] = ()


@dataclass(frozen=True)
class PartPlan(GpuPlan):
    """The plan of one launch of a routine. block: the elements of a program. step: how many of them are compared at a
    time. run: the length of the sorted runs that it merges, or the elements of a short mask, which one program counts.
    shares: how many programs share the work, or the passes of a Fourier transform in the kernel. tiles: the powers of
    two that a matrix is padded to. places: the bits of an integer that counts the elements of two runs."""

    block: int = 0
    step: int = 0
    run: int = 0
    shares: int = 1
    tiles: tuple[int, ...] = ()
    places: int = 32


@dataclass(frozen=True)
class RoutinePlan(GpuPlan):
    """The plan of a routine. parts: a plan for each of its launches. refused: why GPUs do not compute it; "": none."""

    parts: tuple[PartPlan, ...] = ()
    refused: str = ""
