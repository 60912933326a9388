"""What loops of CPUs are planned by: a row for each kind of loop, which all levels share.

The numbers did best on the machines that cpu.py names; the decisions that a row names say what they are for. Those that
follow from a cache are written in its size. Counts are of elements, bytes where a name says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.special_ops import SPECIAL_FUNCTIONS
from .cpu import BEYOND_L2, L1, L2, LINE


@dataclass(frozen=True)
class TaskFacts:
    """How many tasks keep the threads of a machine busy (docs/decisions/0024, 0037, 0104).

    reductions, products: of kernels that reduce and that multiply. blocks, regions: blocks of columns, and regions of
    pipelined maps. rows: rows, or walks along a window, of a kernel that threads share. least, most: elements of a
    piece of one long loop that threads share.
    """

    reductions: int = 16
    products: int = 8
    blocks: int = 16
    regions: int = 32
    rows: int = 64
    least: int = 4096
    most: int = 32768


@dataclass(frozen=True)
class SplitFacts:
    """Of reductions and products that are split (docs/decisions/0029, 0093, 0104).

    elements: of a reduction that is worth a second kernel. pieces: that are too many. piece: elements of one at least:
    what is written and read again is little beside them. columns: of a task that reduces rows of memory. places,
    channels: of a sample, at least and at most: a piece of them is not much more than a first cache. task_rows,
    task_columns: of a task of a product of operands as they lie. depth, work: the k and the multiply-adds that are
    worth a task. read_rows: rows that take as long as reading b. lines, line: pieces of a long line of values that is
    searched, and elements of one at least. edges: of a line that are all compared, a vector of them at a time.
    """

    elements: int = 1 << 18
    pieces: int = 64
    piece: int = 64
    columns: int = 1024
    places: int = 512
    channels: int = 512
    task_rows: int = 32
    task_columns: int = 128
    depth: int = 1024
    work: int = 1 << 18
    read_rows: int = 4
    lines: int = 64
    line: int = 1024
    edges: int = 128


@dataclass(frozen=True)
class VarianceFacts:
    """Of variances and of softmaxes of many elements (docs/decisions/0046, 0095).

    cached: elements that stay in the second level cache from one reading to the next. columns: that are walked through
    together. read_once: elements of columns that are read twice, where no other kernel reads them. row_piece,
    walked_piece, column_piece, piece: most elements of a piece of a row in the first level cache, of one beside another
    row's, and of a column beside 1024 others in the second level cache; and fewest. in_l1: elements of columns that are
    in the first level cache when they are read again. least_columns, most_columns: of Welford's combination: fewer wait
    for the row before them, and the sums of more leave that cache.
    """

    cached: int = L2 // 4
    columns: int = 64
    read_once: int = 1 << 15
    row_piece: int = L1 // 4
    walked_piece: int = 1 << 10
    column_piece: int = 64
    piece: int = 16
    in_l1: int = L1 // 4
    least_columns: int = 128
    most_columns: int = 1024


@dataclass(frozen=True)
class ColumnFacts:
    """Of reductions and scans down columns, and of blocks of columns (docs/decisions/0024, 0060, 0088, 0092, 0096).

    block, block_rows: accumulators of a block of columns, and rows after which they are added into the result.
    wide_bytes: of a row of memory that is reduced before the next one, where rows are pages apart. narrow: columns of
    rows so narrow that twice as many are added into the result together. in_order: most columns of rows that are
    reduced in the order of memory: their accumulators stay in the first cache. together, argmax_together: most rows of
    a block of columns that are walked together; fewer where an argmax is kept, as each row waits for the one before it.
    small_block: elements of blocks so small that the next block is prefetched instead of rows. argmax_streams,
    stream_columns, stream_rows, stream_bytes: streams of rows whose argmax is kept, their most columns, least rows, and
    least bytes: fewer lie in the caches. scan: columns of a task of a scan: what they carry stays in the first cache.
    step, least: whole lines of memory that a block of columns is made of, and its fewest columns. strips: columns of
    pipelined blocks, the best first: two of the longest vectors, so that what stages keep stays in the first cache
    where columns are not deep. most, elements, uncut: columns and elements of a block whose stages run one after the
    other, at most, and elements of one that need not be cut any more. pipelined: elements of a pipelined block; what is
    kept of deep columns lies in the third cache.
    in_registers: rows of memory, fewer of which keep their accumulators in registers.
    """

    block: int = 1024
    block_rows: int = 64
    wide_bytes: int = L1
    narrow: int = 128
    in_order: int = L1 // 8
    together: int = 8
    argmax_together: int = 4
    small_block: int = 40960
    argmax_streams: int = 4
    stream_columns: int = 512
    stream_rows: int = 64
    stream_bytes: int = BEYOND_L2
    scan: int = 1024
    step: int = LINE // 4
    least: int = 64
    strips: tuple[int, ...] = (32, 48, 16)
    most: int = 2048
    elements: int = 1 << 16
    uncut: int = 1 << 17
    pipelined: int = 1 << 18
    in_registers: int = 16


@dataclass(frozen=True)
class RowFacts:
    """Of rows: reductions along them, pipelines of them, and loops over them (docs/decisions/0044, 0059, 0079).

    piece, argmax_piece: elements of a row that its four accumulators take in a run; of one whose argmax is asked for,
    to be searched again. All pieces are whole multiples of four of the longest vectors. stream: elements of each of
    four streams of memory that are reduced at a time: several pages, as hardware prefetchers stop at the end of one.
    streams, stream_piece, stream_piece_bytes: streams of rows (as each_stream_of_rows in loops.h takes them), elements
    and least bytes of one before the next one. prefetched_piece, stream_row, long_piece: least elements of a piece of
    a row that is prefetched, of a row that is a stream, and of a piece that is a stream itself. pipelined, short:
    elements of a row of which a second level cache holds some, and a first level cache. long: elements of a row that is
    worth a loop of its own. copied_bytes: of rows that are copied several at a time. transposed_sum: elements of a
    transposed row whose sum is added to that of the elements before. stream_of_windows, planes: elements of a row that
    is a stream of windows, and long rows that are many. strip, most_strip, strip_iterations: elements of rows that are
    reduced in the order of memory, and iterations that are worth it.
    """

    piece: int = 1024
    argmax_piece: int = 256
    stream: int = 16384
    streams: int = 4
    stream_piece: int = 128
    stream_piece_bytes: int = 256
    prefetched_piece: int = 256
    stream_row: int = 16
    long_piece: int = 1024
    pipelined: int = 1 << 14
    short: int = 1 << 11
    long: int = 1024
    copied_bytes: int = 512
    transposed_sum: int = 8
    stream_of_windows: int = 4096
    planes: int = 6
    strip: int = 16
    most_strip: int = 64
    strip_iterations: int = 4


@dataclass(frozen=True)
class WorkFacts:
    """Work on an element, in additions (schedule/cost/estimates.py), and what follows from it.

    long: beside which the way of an element through memory is short. function: of an operator that is a function of
    many steps. load: of a load. cheap: more is worth storing rather than computing again. term: of a term that is
    computed again for each reader; terms, block: most of them in a row, and in a block of columns. mask: of a mask
    that is made where attention reads it, beside the products of a head.
    """

    long: int = 12
    function: int = 12
    load: int = 2
    cheap: int = 6
    term: int = 16
    terms: int = 1 << 16
    block: int = 1 << 18
    mask: int = 40


#: operator -> what one evaluation takes, in additions; operators that are not listed take 1. Estimates: what they
#: decide, to store or to compute again, depends on the order of magnitude
OPERATOR_COST = {
    "fma": 2,
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal", "floor_div", "remainder", "fmod"), 4),
    **dict.fromkeys(("exp", "exp_weight", "exp2", "log", "log2", "log10", "tanh", "sigmoid", "silu", "sin", "cos"), 12),
    **dict.fromkeys(("erf", "erfc", "gelu_erf", "gelu_tanh", "pow", "tan", "expm1", "log1p"), 16),
    **dict.fromkeys(("asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma"), 24),
    **{name: 100 for name, *_ in SPECIAL_FUNCTIONS},
    **dict.fromkeys(("random_word", "random_unit", "random_normal", "random_normal_wide"), 100),
}


@dataclass(frozen=True)
class TransposeFacts:
    """Of transposes and of rows that are transposed for SIMD across them (docs/decisions/0035, 0051, 0070, 0090).

    lane_bytes, lanes: of a block of lanes, and as many elements at most (mycc::kTransposedRows). row_bytes, rows: of
    the rows of memory that they are taken from, likewise. tile_bytes: of the rows that are transposed together
    (mycc::kTransposedBytes). stream_bytes, most_streams, least_streams: fewer lanes, whole vectors of any transposed
    operand, in more of a cache's sets: rows are taken whole where they fit. whole_bytes: of blocks of whole rows: this
    one and the next fit the second level cache. row: elements of a row: fewer are picked out of whole vectors.
    reduction, search, function, tail: steps of a row that a transpose saves: of a reduction across the lanes, of an
    argmax that is searched, of a function of one number, and of a vector that is filled in part. one_way, both_ways:
    steps that it costs for each element. many, last: rows: fewer are not worth it; and of the last of several loops
    over them, which has blocks of its own. copied_step, strides: elements from lane to lane from which an operand is
    copied, and up to which; of more, several vectors share a line. interleaved: likewise where maps pick fewer that
    are evenly apart out of whole vectors. copied_bytes: of an operand: of smaller ones the first cache holds all lines.
    copied_lanes: iterations of the loop over the lanes. reads, results: elements that are read, of those of an operand,
    and results beside them: fewer that lie apart take less time than a copy.
    """

    lane_bytes: int = 4 * LINE
    lanes: int = 128
    row_bytes: int = 16 * LINE
    rows: int = 256
    tile_bytes: int = LINE
    stream_bytes: tuple[int, int] = (2 * LINE, LINE)
    most_streams: int = 64
    least_streams: int = 16
    whole_bytes: int = 200 << 10
    row: int = 9
    reduction: int = 12
    search: int = 75
    function: int = 50
    tail: int = 14
    one_way: float = 1.0
    both_ways: float = 1.5
    many: int = 256
    last: int = 64
    copied_step: int = 3
    strides: int = 4
    interleaved: int = 16
    copied_bytes: int = 2 * L1
    copied_lanes: int = 16
    reads: float = 0.5
    results: float = 1 / 16


@dataclass(frozen=True)
class WindowFacts:
    """Of windows that slide (docs/decisions/0032, 0036, 0052, 0064).

    open, weighted_open: windows that have begun, whose vectors stay in registers; and of windows with weights. taps: of
    a row's reduction along the lanes, or down the rows of one column. products, begun: products of a row with all
    windows that are unrolled, and such windows of a convolution; iterations: products of a signal's element that are.
    lanes, weighted_lanes: that are worth it. one_by_one: elements of a window that are reduced one by one, the windows
    side by side. least_walk, most_walk: windows of a walk: the first rows of one are reduced by the walk before it as
    well. overlaps: of a walk: times as many windows as are open where it begins. near_place_bytes: of a place whose
    lines are prefetched in the order of memory. strip_bytes: of the rows of a strip of columns, which the next rows of
    the result read again. row_bytes: of rows that are reduced down before they are reduced along: they stay in the
    first level cache. compared: taps of a window whose maxima are looked for tap by tap.
    """

    open: int = 6
    weighted_open: int = 10
    taps: int = 9
    products: int = 128
    begun: int = 11
    iterations: int = 16
    lanes: int = 16
    weighted_lanes: int = 6
    one_by_one: int = 16
    least_walk: int = 8
    most_walk: int = 64
    overlaps: int = 6
    near_place_bytes: int = 4 * LINE
    strip_bytes: int = 12288
    row_bytes: int = L1 // 2
    compared: int = 16


@dataclass(frozen=True)
class FetchFacts:
    """Of what is prefetched and written around loops (docs/decisions/0057, 0070, 0074, 0085, 0091).

    row_bytes, rows: of rows that are looked up, at most. plane_bytes: of rows that are looked up across: they fit the
    second level cache. block_bytes: of a block of rows that is prefetched in the order of memory while the block before
    it is read. looked_up_bytes: of a row whose elements are read in any order, at least. short_bytes: of a row that is
    prefetched at once; longer ones vector by vector. at_once_bytes: of a row that is moved at once. densest: elements
    of a row that is prefetched for one that is looked up in it. least, most: elements of a row that are worth
    prefetching while the row before it is computed upon for long, or read again; rows that the first cache does not
    hold beside it only while a stage computes for long. region_bytes: of a region of pipelined maps, which lies in the
    second level cache beside the one before it. collide_bytes: between rows whose lines fall into few sets of the
    caches. lines: of a row: one more that is written twice counts for little. combined_bytes, most_combined: of a row
    that is gathered before it is written: it stays in the first level cache, beside what it is made of.
    """

    row_bytes: int = 1 << 16
    rows: int = 32
    plane_bytes: int = 2 * L2
    block_bytes: int = 1 << 16
    looked_up_bytes: int = 4 * LINE
    short_bytes: int = 16 * LINE
    at_once_bytes: int = 8192
    densest: int = 8
    least: int = 512
    most: int = 8192
    region_bytes: int = L2 // 2
    collide_bytes: int = 512
    lines: int = 16
    combined_bytes: int = 32
    most_combined: int = L1 // 2


@dataclass(frozen=True)
class LaneFacts:
    """Of loops along the lanes (docs/decisions/0026, 0063, 0067, 0079).

    least: iterations of a loop along the lanes. few: elements so few that they are picked out of whole vectors, or
    taken together to fill one. interleaved: vectors that go out together. apart: elements of a row that make lanes of
    their own: results so far apart are stored in another order. unrolled: iterations of short loops that are unrolled.
    aligned: what is left of a start: less than so many elements, so that vectors stay as well aligned as they were.
    """

    least: int = 8
    few: int = 8
    interleaved: int = 8
    apart: int = 16
    unrolled: int = 16
    aligned: int = 64


@dataclass(frozen=True)
class FusionFacts:
    """Of rows and maps that one kernel keeps between its stages (docs/decisions/0021, 0048, 0091).

    local_bytes: of a row of intermediate values: of a longer one the arena holds what the first cache does not.
    looked_up_bytes: of a row of what is looked up: it stays in the second level cache. together_bytes, together: of
    rows that are made together, and so many at most: one that is read right after it was written is waited for.
    map_bytes: of a map (of one image) between convolutions: smaller ones stay in the second level cache as they are.
    weight_bytes: of the weights of both 1x1 of a chain, at most, which every band reads again. image_channels: fewer
    are those of an image, whose taps are read together. band_rows: of the map of a chain: tasks of several threads are
    blocks of rows, and each makes the first rows of its map anew.
    """

    local_bytes: int = L1 // 2
    looked_up_bytes: int = 1 << 16
    together_bytes: int = L1 // 2
    together: int = 16
    map_bytes: int = L2
    image_channels: int = 8
    weight_bytes: int = 2 * L2
    band_rows: int = 14


TASKS, SPLITS, VARIANCES, WORK = TaskFacts(), SplitFacts(), VarianceFacts(), WorkFacts()
COLUMN_LOOPS, ROW_LOOPS, LANE_LOOPS = ColumnFacts(), RowFacts(), LaneFacts()
TRANSPOSES, WINDOWS, FETCHES, FUSIONS = TransposeFacts(), WindowFacts(), FetchFacts(), FusionFacts()
