"""How much a program of a GPU takes, by kind of kernel: a row for each kind, which every chip has for itself.

The numbers were measured on an H200 (docs/gpu-tiles.md and the decisions that the rows name). The other chips have the
same ones, as nobody has measured these there; a chip that differs has a row of its own in its Device. Counts are of
elements, bytes where a name says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..ir.plans.tiles import AttentionTile, GemmTile


@dataclass(frozen=True)
class MapFacts:
    """Of maps (docs/gpu-tiles.md).

    least, most: of a program. most_of_row: of a row of a tile of rows, which has `rows` in all. side: of a tile that is
    transposed. least_axis: shorter inner loops are not worth an axis. of_largest: the programs of a dynamic map are
    made for its most elements, divided by this, at least. of_many: how many times as many of a map of Device.many, so
    that more loads are under way. each, most_warps: of a thread of a tile, and warps of one. together: maps that share
    a launch at most.
    """

    least: int = 128
    most: int = 1024
    rows: int = 2048
    side: int = 64
    least_axis: int = 16
    of_largest: int = 8
    of_many: int = 4
    each: int = 8
    most_warps: int = 8
    together: int = 192


@dataclass(frozen=True)
class Share:
    """Elements of a program's tile, and of one of its threads."""

    tile: int
    each: int


@dataclass(frozen=True)
class RowFacts:
    """Of reductions and of nests over rows (docs/gpu-tiles.md, docs/decisions/0056).

    held, held_dynamic: the longest row that registers hold, and of dynamic rows, whose kernels are made for the longest
    one. few: what a program takes of few elements. reduced, placed, written: of many: rows that are only reduced, so
    that loads hide the time of the reductions; short ones with a place to find in each; rows that are written too.
    piece: of a row that is walked through. lone: lengths of rows of which a program has one. each_walked, each_lane: of
    a thread. few_steps, enough_lanes, least_lanes, most_lanes: steps that a lane takes by itself, lanes for each
    multiprocessor that are enough for that, and lanes of a program. unrolled: steps whose loads are all begun at once.
    short: the longest row whose elements are looked at one by one for the place of an extremum. neighbours,
    neighbours_of_many: rows side by side in memory that a program takes, so that it reads whole lines, and where each
    multiprocessor has `several` programs of them. ahead: blocks of those that are under way.
    """

    held: int = 16384
    held_dynamic: int = 4096
    few: Share = Share(2048, 8)
    reduced: Share = Share(4096, 32)
    placed: Share = Share(4096, 16)
    written: Share = Share(2048, 16)
    piece: int = 4096
    lone: int = 1024
    each_walked: int = 16
    each_lane: int = 8
    few_steps: int = 64
    enough_lanes: int = 256
    least_lanes: int = 128
    most_lanes: int = 1024
    unrolled: int = 16
    short: int = 512
    neighbours: int = 32
    neighbours_of_many: int = 64
    several: int = 3
    ahead: int = 3


@dataclass(frozen=True)
class PieceProgram:
    """Warps of a program, and registers of a thread where they are bounded."""

    warps: int
    registers: int | None = None


@dataclass(frozen=True)
class PieceFacts:
    """Of long rows that are cut into pieces (rows of 50257 half-precision numbers: docs/decisions/0031, 0055).

    once, held, again: of a piece of rows that are read once, that registers hold, and that are read again from L2 (two
    programs for each multiprocessor, whose rows fill half of it). most_held, most_held_twice: that the registers of a
    program hold, and of each of two. programs: size of a piece, whether every stage widens in its own way -> a program.
    """

    once: int = 4096
    held: int = 2048
    again: int = 8192
    most_held: int = 25 * 2048
    most_held_twice: int = 99 * 512
    programs: tuple[tuple[tuple[int, bool], PieceProgram], ...] = (
        ((4096, False), PieceProgram(4)),
        ((8192, False), PieceProgram(32)),
        ((2048, False), PieceProgram(8)),
        ((2048, True), PieceProgram(8, 128)),
    )


@dataclass(frozen=True)
class LaneFacts:
    """Of scans and scatters (docs/gpu-tiles.md, docs/decisions/0118).

    least_steps: shorter scans are as fast step by step. enough_rows: rows for each multiprocessor whose steps one lane
    each takes as fast. piece, tile: steps at once, and elements of a program. lanes: of a program that takes steps in
    order. row, ahead: updates of one step in a program, and later indices that it looks at together. most_steps: more
    steps, each of which is compared with all others, are slower than steps in order. added, many: steps whose updates
    of one place are added together, and how many of those that are looked at have to lead there.
    """

    least_steps: int = 16
    enough_rows: int = 256
    piece: int = 1024
    tile: int = 2048
    lanes: int = 128
    row: int = 512
    ahead: int = 1024
    most_steps: int = 1 << 17
    added: int = 16
    many: int = 32


#: a tile of programs that walk -> microseconds for each tile, and for each step of k
Walks: TypeAlias = tuple[tuple[GemmTile, tuple[float, float]], ...]


@dataclass(frozen=True)
class ProductFacts:
    """Of matrix products and convolutions (docs/gpu-tiles.md, docs/decisions/0009, 0056).

    heavy, heavy_sums: the largest tile in one piece, and the most sums of a thread, that leave registers for a heavy
    epilogue, or for another tensor that it reads. walks: tiles of programs that walk. walk_rows, walk_depth, walk_tile:
    rows, depth, and elements of the result for each multiprocessor from which programs walk. shared_bytes: of the parts
    of all tiles that programs share. splits: programs that share a tile. epilogue: traffic of an epilogue in bytes of
    its result. other_registers: of a thread beside its sums. few_rows: of tiles up to which they run row by row.
    ranges: rows from which a product of dynamic rows has a tile of its own, and rows that this tile is chosen for.
    early_rows, early_tiles: rows of tiles, and tiles for each multiprocessor, up to which weights are worth asking for
    early. row_columns, least_row_columns: columns of a program of one row, of which fewer fill the chip. row_splits,
    row_depth, row_step: programs that share its columns, values of k that each of these has at least, and those that a
    program takes at a time. depthwise, depthwise_channels: results of a tile of a depthwise convolution, and its fewest
    and most channels. many_warps: results of a tile that 8 warps share; of 16 bits twice as many.
    wide_steps: results of a tile of 16 bits whose steps may be of two lines. most_float: results of a tile of float32.
    unknown_part: of the roof, that a tile reaches which nobody has measured. padded: columns of a row from which it is
    padded to a multiple of 16 bytes. updated, states: elements of a product, and tensors of the state that are updated
    by it, from and beyond which the update is a kernel of its own. beside: other tensors of the size of such a product
    that its epilogue reads, beyond which what follows is a kernel of its own.
    """

    heavy: int = 128 * 192
    heavy_sums: int = 128
    walks: Walks = (
        (GemmTile(128, 384, 64, 8, 3, descriptors=True), (1.5, 1.0)),
        (GemmTile(128, 320, 64, 8, 3, descriptors=True), (1.5, 0.92)),
        (GemmTile(128, 256, 64, 8, 3, descriptors=True, halves=True), (1.5, 0.68)),
        (GemmTile(128, 192, 64, 4, 4, descriptors=True), (1.5, 0.49)),
        (GemmTile(128, 192, 64, 8, 4, descriptors=True), (1.5, 0.54)),
        (GemmTile(128, 128, 64, 8, 4, descriptors=True, flatten=True), (1.2, 0.37)),
    )
    walk_rows: int = 1024
    walk_depth: int = 256
    walk_tile: int = 128 * 64
    shared_bytes: int = 64 << 20
    splits: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    epilogue: float = 1.7
    other_registers: int = 40
    few_rows: int = 8
    ranges: tuple[tuple[int, int], ...] = ((256, 512), (1024, 2048))
    early_rows: int = 2
    early_tiles: int = 2
    row_columns: int = 16
    least_row_columns: int = 4
    row_splits: int = 8
    row_depth: int = 1024
    row_step: int = 512
    depthwise: int = 2048
    depthwise_channels: tuple[int, int] = (16, 64)
    many_warps: int = 128 * 64
    wide_steps: int = 64 * 128
    most_float: int = 128 * 128
    unknown_part: float = 0.5
    padded: int = 128
    updated: int = 1 << 18
    states: int = 1
    beside: int = 1


@dataclass(frozen=True)
class PixelFacts:
    """Of gradients of convolutions' weights, which sum over pixels.

    side, least: channels of a tile at most, and at least. step: pixels at a time. stages: of loads. large: results of a
    tile from which a multiprocessor has one program, of `large_warps`; it has `together` of smaller ones, of
    `few_warps`. most_parts: programs that share a tile. least_steps: that each of these has at least. apart: parts from
    which a kernel of its own sums them, in blocks of `summed` rows at most, with `of_warp` results for a warp.
    """

    side: int = 128
    least: int = 16
    step: int = 64
    stages: int = 4
    large: int = 128 * 128
    large_warps: int = 8
    few_warps: int = 4
    together: int = 3
    most_parts: int = 64
    least_steps: int = 8
    apart: int = 3
    summed: int = 16
    of_warp: int = 128


_WALKING = GemmTile(128, 256, 128, 8, 3, descriptors=True)
_PROMOTED = GemmTile(128, 128, 128, 8, 4, descriptors=True)


@dataclass(frozen=True)
class QuantisedFacts:
    """Of products of quantised weights (docs/decisions/0119).

    few_rows: up to which a product is bound by its weights, which are then read by as many programs as fill the chip.
    narrow: columns of a tile of few rows. splits, least_steps: programs that share one, and steps that each of these
    has at least. row_filling: programs of one row for each multiprocessor. stages: of few rows: more take longer to
    fill than they hide. crowd, wide_row: tiles of narrow[0] columns for each multiprocessor from which narrower ones
    are no faster, and from which one row is as fast on tensor cores. many_rows, many_columns, many_deep: from which
    programs walk over tiles. tile, narrow_tile: rows and columns of a tile of many rows, and its columns where there
    are no more. steps: values of k that it takes at a time, by the type of the rows. byte_step: of each line of bytes.
    group_steps: likewise where scales are in groups, of bytes and of halves of bytes. warps, few_warps: of a whole tile
    and of a smaller one. walking, promoted: the tiles of programs that walk, and of sums of float8 that are added to
    others in registers of their own.
    """

    few_rows: int = 16
    narrow: tuple[int, ...] = (64, 32)
    splits: tuple[int, ...] = (1, 2, 4, 8)
    least_steps: int = 2
    row_filling: int = 2
    stages: int = 3
    crowd: int = 4
    wide_row: int = 8
    many_rows: int = 1024
    many_columns: int = 256
    many_deep: int = 512
    tile: int = 128
    narrow_tile: int = 64
    steps: tuple[tuple[str, int], ...] = (("f16", 64), ("bf16", 64), ("f32", 32))
    byte_step: int = 64
    group_steps: tuple[int, int] = (64, 32)
    warps: int = 8
    few_warps: int = 4
    walking: GemmTile = _WALKING
    promoted: GemmTile = _PROMOTED


@dataclass(frozen=True)
class RoutineFacts:
    """Of routines (docs/gpu-tiles.md).

    columns: of a right-hand side for one program. run, sorted, step, merged: of a run that is sorted by counting, of a
    program, of those compared at once, and of a program that merges. block, parts: of a mask that a program has in
    registers, and parts of it, each of a program, at most. alone: of a mask that one program has. searched, rows:
    places that a program searches for, and rows of one that merges. lanes, pooled: of a program that works through
    boxes or states, and of one that pools. sums, sums_f64: sums in registers of a tile of a Fourier transform, real and
    imaginary ones. transforms: of a program. compared, summed: comparisons, and sums of a factorisation or a transform,
    of a thread. most_warps: of a transform.
    """

    columns: int = 16
    run: int = 1024
    sorted: int = 128
    step: int = 128
    merged: int = 256
    block: int = 1024
    parts: int = 1024
    alone: int = 4096
    searched: int = 256
    rows: int = 128
    lanes: int = 1024
    pooled: int = 128
    sums: int = 2048
    sums_f64: int = 1024
    transforms: int = 1024
    compared: int = 64
    summed: int = 16
    most_warps: int = 8


@dataclass(frozen=True)
class SplitFacts:
    """Of reductions and products that are split (docs/decisions/0015, 0031).

    rows, row: programs that are enough, and elements of a row that one program reduces faster than two kernels.
    columns, column: the same of rows that lie side by side in memory, which programs take many of. parts, least_parts:
    of a reduction. product_parts, product_rows: of a product, and rows from which there are tiles enough. step: values
    of k that a part is a multiple of. read, gain: microseconds that the kernel behind takes for each part, and that a
    split has to win at least.
    """

    rows: int = 64
    row: int = 32768
    columns: int = 8192
    column: int = 1024
    parts: int = 256
    least_parts: int = 8
    product_parts: tuple[int, ...] = (2, 3, 4, 6, 8)
    product_rows: int = 512
    step: int = 64
    read: float = 0.1
    gain: float = 0.3


@dataclass(frozen=True)
class FusionFacts:
    """Of maps that another kernel computes (docs/decisions/0039; fitted to tests/gpu/prologues_sm90.json).

    moves, through_shared: operations that conversions and moves cost beside an element's own, and those of its way
    through shared memory. group_rows: rows of a tile from which the tensor cores take an operand once for all columns.
    launch_work: additions that take as long as a launch. recomputed: operations of an element that several kernels
    compute rather than one stores it, where they read no more bytes for it; by_maps: the same where maps alone read
    it. numbers: single numbers that one kernel makes. late: elements of the largest tensor whose update runs behind all
    else.
    """

    moves: float = 3.0
    through_shared: float = 4.5
    group_rows: int = 64
    launch_work: int = 1 << 26
    recomputed: int = 16
    by_maps: int = 32
    numbers: int = 64
    late: int = 1 << 18


@dataclass(frozen=True)
class AttentionFacts:
    """Of attention whose size no table has (docs/gpu-tiles.md).

    half_tiles, float_tiles: the largest head, and rows and columns of a tile of 16 and of 32 bits. least_rows: of a
    tile. dynamic_rows: at most, where the number of queries is dynamic (decision 0125). packed: queries of all
    heads that share keys, which are one tile up to this many. splits, steps: programs that share keys, and blocks
    of keys that each of these has at least. many_rows, warps, few_warps: rows from which a tile has more warps.
    half_stages, float_stages: of loads. padded_head: elements of the longest row of keys that is padded to a power of
    two; a longer one is two blocks.
    """

    half_tiles: tuple[tuple[int, tuple[int, int]], ...] = ((64, (128, 64)), (128, (64, 64)), (1 << 30, (64, 32)))
    float_tiles: tuple[tuple[int, tuple[int, int]], ...] = ((64, (64, 32)), (1 << 30, (32, 32)))
    least_rows: int = 16
    dynamic_rows: int = 64
    packed: int = 16
    splits: int = 16
    steps: int = 4
    many_rows: int = 128
    warps: int = 8
    few_warps: int = 4
    half_stages: int = 3
    float_stages: int = 2
    padded_head: int = 256


#: the longest head, and the tile of a kernel for it
HeadTiles: TypeAlias = tuple[tuple[int, AttentionTile], ...]

_HALF_WHOLE: HeadTiles = ((64, AttentionTile(64, 128, 8, 3)), (128, AttentionTile(64, 64, 8, 2)))
_HALF_QUERIES: HeadTiles = (
    (64, AttentionTile(128, 64, 8, 3)),
    (128, AttentionTile(128, 32, 8, 3)),
    (256, AttentionTile(64, 32, 8, 2)),
    (512, AttentionTile(32, 16, 8, 2)),
)
_HALF_KEYS: HeadTiles = (
    (64, AttentionTile(32, 64, 4, 3)),
    (128, AttentionTile(32, 64, 4, 2)),
    (256, AttentionTile(32, 64, 8, 2)),
    (512, AttentionTile(16, 16, 8, 1)),
)
_PLAIN_KEYS: HeadTiles = (_HALF_KEYS[0], (128, AttentionTile(64, 64, 4, 2)), *_HALF_KEYS[2:])
_FLOAT_WHOLE: HeadTiles = ((64, AttentionTile(32, 128, 8, 1)),)
_FLOAT_QUERIES: HeadTiles = (
    (64, AttentionTile(16, 32, 4, 1)),
    (128, AttentionTile(16, 32, 4, 1)),
    (512, AttentionTile(16, 16, 8, 1)),
)
_FLOAT_KEYS: HeadTiles = (
    (64, AttentionTile(16, 32, 4, 1)),
    (128, AttentionTile(16, 16, 4, 1)),
    (512, AttentionTile(16, 16, 8, 1)),
)


@dataclass(frozen=True)
class GradientFacts:
    """Of the gradient of attention (docs/decisions/0142).

    whole: of one kernel for all gradients, where the keys are one block; its steps of queries at most. queries, keys:
    of the kernel over blocks of queries, and of that over blocks of keys, which are the second size of a tile. Each for
    16 and for 32 bits. plain_keys: of keys of 16 bits where sizes are fixed and neither a mask nor dropout takes
    registers. longest_head: that registers hold.
    """

    half_whole: HeadTiles = _HALF_WHOLE
    half_queries: HeadTiles = _HALF_QUERIES
    half_keys: HeadTiles = _HALF_KEYS
    plain_keys: HeadTiles = _PLAIN_KEYS
    float_whole: HeadTiles = _FLOAT_WHOLE
    float_queries: HeadTiles = _FLOAT_QUERIES
    float_keys: HeadTiles = _FLOAT_KEYS
    whole_steps: int = 8
    longest_head: int = 512


#: elements of a thread of a tile, and warps of a program, where a row says nothing else
EACH, PROGRAM_WARPS = 8, 16
#: rows and columns of a matrix that a factorisation has in registers; of one in scratch memory, of which a row or a
#: column is in registers; of one that is solved for, a row at a time; and of one whose exponential needs six of them
MATRIX_IN_REGISTERS, MATRIX_IN_MEMORY, MATRIX_OF_SOLVER, MATRIX_OF_EXP = 128, 4096, 1024, 64

#: measured on an H200
MAPS, ROWS, PIECES, LANES = MapFacts(), RowFacts(), PieceFacts(), LaneFacts()
PRODUCTS, QUANTISED, ROUTINES = ProductFacts(), QuantisedFacts(), RoutineFacts()
PIXELS = PixelFacts()
SPLITS, FUSIONS = SplitFacts(), FusionFacts()
ATTENTION, GRADIENTS = AttentionFacts(), GradientFacts()
