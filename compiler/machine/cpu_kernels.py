"""What kernels of CPUs are cut and choose by when they run, where sizes are known: a row for each family of kernels.

codegen/cpu/machine_header.py makes a constant of C++ of every field, `kTaskElements` of `task_elements`; the headers
of kernels/ include them as machine.h. The numbers did best on the machines that cpu.py names; the decisions that a
row names say what they are for. Those that follow from a cache are written in its size.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .cpu import IN_FLIGHT, L1, L2, LINE, NONTEMPORAL, PANEL, SET_STRIDE, STREAM_PREFETCH
from .cpu_products import BLOCKING, FLOAT, BlockingFacts


@dataclass(frozen=True)
class CacheNumbers:
    """Caches and memory (cpu.py).

    line_bytes: of a cache. set_bytes, cache_ways: of the first one: after which addresses fall into the same set,
    and lines of a set. last_cache_bytes: of the third cache of eight Zen 5 cores: of more than that, what the last
    run has read is gone when the next begins. streamed_bytes: of results that are written by non-temporal stores.
    stream_prefetch: bytes that a stream is fetched before its use.
    """

    line_bytes: int = LINE
    set_bytes: int = SET_STRIDE
    cache_ways: int = L1 // SET_STRIDE
    last_cache_bytes: int = 32 << 20
    streamed_bytes: int = NONTEMPORAL
    stream_prefetch: int = STREAM_PREFETCH


@dataclass(frozen=True)
class LoopNumbers:
    """Loops (docs/decisions/0024, 0060, 0074, 0091).

    task_elements: of a task, about. pipelined_tasks, most_pipelined: tasks of rows that pipelined stages or streams
    keep apart, and times the elements of a task that one has at most: the first rows and the last ones run alone.
    most_regions: the same of regions of blocks, and the regions of a task. worker_tasks: tasks that keep a worker
    busy. column_group: columns that tasks share out together: those of a line of floats. held_vectors: of
    accumulators that stay in registers, at most: there are as many registers again. strip_vectors: of accumulators
    of a strip of a row. strips_row: bytes of a row whose strips are reduced one after the other, so that rows stay
    in the first cache. welford_rows: whose squares are a sum of their own. index_prefetch: indices that are fetched
    before they are read: they are eight bytes each, mostly more than what they pick. picked_prefetch: bytes that
    elements are fetched before they are picked: a store waits for the number of those in front of it.
    transposed_rows, transposed_bytes: of a tile that is transposed. short_row_prefetch: bytes that short rows are
    fetched before they are transposed: cores with longer vectors wait longer for memory. lane_vectors: of a strip
    of lanes, at most. window_vectors: of the windows of a strip that have begun and of a row, in registers.
    combined_bytes, combined_beside: bytes that are combined before lines are written, few enough for the first
    cache and more than the stores that may be on their way there, and what is beside them.
    """

    task_elements: int = 1 << 14
    pipelined_tasks: int = 32
    most_pipelined: int = 64
    most_regions: int = 8
    worker_tasks: int = 4
    column_group: int = PANEL
    held_vectors: int = 8
    strip_vectors: int = 12
    strips_row: int = 2048
    welford_rows: int = 64
    index_prefetch: int = 1024
    picked_prefetch: int = 4096
    transposed_rows: int = 128
    transposed_bytes: int = LINE
    short_row_prefetch: int = 1024
    lane_vectors: int = 8
    window_vectors: int = 10
    combined_bytes: int = IN_FLIGHT
    combined_beside: int = 2 * LINE


@dataclass(frozen=True)
class SortNumbers:
    """Sorting and searching (docs/decisions/0045).

    ranked_vectors: of keys, of rows and lists that are sorted by ranks, which takes n^2 / lanes steps.
    key_prefetch: bytes that a row is fetched while it is looked through: each join is a branch that is guessed
    wrong. picked: of a short row, at most, that are picked one by one. searches: that go on side by side: each step
    of one waits for memory.
    """

    ranked_vectors: int = 8
    key_prefetch: int = 4096
    picked: int = 4
    searches: int = 8


@dataclass(frozen=True)
class ProductNumbers:
    """Products by panels (docs/decisions/0037, 0049, 0068).

    panel: columns of one. sums_bytes: of a block that wait for the next depth block, in the second cache.
    max_group: panels of a group. many_tiles, streamed_group: of rows, from which a group of tiles that stream has
    so many times as many panels: rows come from the second cache for fewer groups. task_work: multiply-adds below
    which a task is not worth a chunk of its own. product_tasks, even_tasks: tasks of a worker, and where filling a
    row costs. read_rows: reading B takes as long as multiplying so many rows, at least. more_blocks: of rows and of
    panels, to make shares even. uneven_share: the part of a share that the busiest worker may have more. task_rows,
    task_panels: of a task at most and at least. block_tiles: of rows, of a block, however deep. wide_tiles: across
    a task that has whole ones.
    """

    panel: int = PANEL
    sums_bytes: int = L2 // 2
    max_group: int = 8
    many_tiles: int = 16
    streamed_group: int = 3
    task_work: int = 1 << 18
    product_tasks: int = 4
    even_tasks: int = 2
    read_rows: int = 4
    more_blocks: int = 3
    uneven_share: int = 32
    task_rows: int = 1024
    task_panels: int = 4
    block_tiles: int = 8
    wide_tiles: int = 4


@dataclass(frozen=True)
class FewRowNumbers:
    """Products of few rows, whose right operand lies as it is (docs/decisions/0101).

    few_rows, few_dots: rows up to which a B of contiguous rows, and of contiguous columns, is not packed.
    few_vectors: of columns that 1, 2, ... rows sum at a time. few_columns: that are finished at a time. few_tall:
    rows that are summed at a time.
    """

    few_rows: int = 8
    few_vectors: tuple[int, ...] = (8, 4, 2, 2)
    few_dots: int = 3
    few_columns: int = 128
    few_tall: int = 4


@dataclass(frozen=True)
class QuantisedNumbers:
    """Products with quantised weights (docs/decisions/0114).

    weight_prefetch: bytes of weights that products of few rows fetch before their use. mixed_rows: whose weights
    become floats in registers. mixed_accumulators: of a tile, at most: sums of an element hide the latency.
    mixed_run: values of k whose sums start from zero, where there are no groups. integer_tile_rows,
    integer_tile_panels: of the tallest tile of integers, without and with groups, which hold sums of two kinds.
    near_panels: bytes of panels that stay in the first cache while rows pass over them, tile by tile.
    finished_panels: whose sums are finished together, at most, where all panels of a task are near.
    integer_panels, integer_tiles: panels and tiles of rows of a task, at least. plain_panels: panels where rows are
    read as they lie, and not packed for each task. few_integer_tiles: of rows, fewer than which are shared out by
    panels alone.
    """

    weight_prefetch: int = IN_FLIGHT
    mixed_rows: int = 4
    mixed_accumulators: int = 15
    mixed_run: int = 256
    integer_tile_rows: tuple[int, int] = (4, 4)
    integer_tile_panels: tuple[int, int] = (1, 1)
    near_panels: int = L1 // 2
    finished_panels: int = 24
    integer_panels: int = 16
    plain_panels: int = 3
    integer_tiles: int = 8
    few_integer_tiles: int = 4


@dataclass(frozen=True)
class MatrixTileNumbers:
    """Products by tiles of matrix instructions (docs/decisions/0131).

    Processors that have them have a first cache of 48 KiB and a second one of 2 MiB.

    summed_panels: whose sums are finished together, at most. tile_group_bytes: of weights, in the first cache.
    tile_depth_bytes: of a part of k, of the rows of two tiles and of two panels. tile_partials: blocks whose sums
    wait for the next part of k. tile_weights: bytes of a task's, which stay in the second cache beside its rows.
    tile_rows_bytes: of a task's rows, there. tile_task_work: multiply-adds below which a task is not worth a chunk
    of its own. tile_finishing: multiply-adds that take as long as to finish an element of the result.
    tile_undone, tile_undone_step: lines of weights that can be made signed while it is undone for two tiles of rows
    that they are not, and for a step of them.
    """

    summed_panels: int = 4
    tile_group_bytes: int = 24 << 10
    tile_depth_bytes: int = 28 << 10
    tile_partials: int = 32
    tile_weights: int = 256 << 10
    tile_rows_bytes: int = 1 << 20
    tile_task_work: int = 1 << 21
    tile_finishing: int = 256
    tile_undone: int = 128
    tile_undone_step: int = 24


@dataclass(frozen=True)
class BlockingNumbers:
    """What a choice of the tuner may change; here it is what the schedule has (cpu_products.py)."""

    gemm_depth: int
    gemm_together: int
    gemm_group_bytes: int
    gemm_block_bytes: int
    conv_depth: int
    conv_panel_bytes: int
    conv_pixels: int
    attention_keys: int
    attention_floats: int

    @staticmethod
    def of(facts: BlockingFacts) -> BlockingNumbers:
        products = (facts.depth, facts.together, facts.group_bytes, facts.block_bytes)
        return BlockingNumbers(*products, facts.conv_depth, facts.conv_bytes, facts.pixels, facts.keys, facts.queries)


@dataclass(frozen=True)
class AttentionNumbers:
    """Attention and its gradient (docs/decisions/0028, 0076, 0099).

    panel_floats, key_group_floats: of a block's panels, which stay in the second cache, and of a group of panels of
    keys, which stay in the first one. value_group: panels of values that are multiplied together. score_rows: query
    rows whose scores stay in the first cache. attention_tasks: of a worker, before tasks are made smaller.
    row_prefetch: rows that are fetched: rows that lie apart are no stream for the hardware. direct_rows: of a task,
    at most; up to here packing does not pay. direct_block, direct_most: keys of a block, and of the last one: a few
    keys more are no block of their own. score_keys, value_keys: keys whose dot products with a row are formed, and
    whose values are added to it, together. direct_prefetch: rows of keys that are fetched before their use, at
    least. gradient_rows: query rows of a block. gradient_key_floats, gradient_keys: of a block's panels of keys and
    values, about, and its keys, at most. gradient_chunk: blocks of rows of a task that makes dQ alone.
    gradient_scratch: floats of a task that makes all, at most.
    """

    panel_floats: int = 3 * L2 // 4 // FLOAT
    key_group_floats: int = 3 * L1 // 4 // FLOAT
    value_group: int = 2
    score_rows: int = 24
    attention_tasks: int = 3
    row_prefetch: int = 16
    direct_rows: int = 8
    direct_block: int = 128
    direct_most: int = 160
    score_keys: int = 4
    value_keys: int = 8
    direct_prefetch: int = 8
    gradient_rows: int = 96
    gradient_key_floats: int = 3 * L2 // 8 // FLOAT
    gradient_keys: int = 256
    gradient_chunk: int = 4
    gradient_scratch: int = 8 << 20


@dataclass(frozen=True)
class ConvNumbers:
    """Convolutions by panels (docs/decisions/0064, 0077).

    product_channels: 1x1 from so many channels to more, or the reverse, is a product. merged_channels: fewer input
    channels than this are merged. conv_strip_bytes: padded input of a block, about. conv_task_work: multiply-adds
    below which a task is not worth a chunk of its own. conv_tasks: of a worker. few_tasks: of a worker, below which
    blocks are made as many as give all workers the same. conv_task_panels: of a task, at least. merged_pixels,
    deep_pixels: times the pixels of a block, where channels are merged and where a strip has several slices.
    conv_max_group: panels of a group. grouped_channels: that are finished at a time.
    """

    product_channels: int = 64
    merged_channels: int = 32
    conv_strip_bytes: int = 2 * L2
    conv_task_work: int = 1 << 18
    conv_tasks: int = 4
    few_tasks: int = 8
    conv_task_panels: int = 4
    merged_pixels: int = 4
    deep_pixels: int = 2
    conv_max_group: int = 16
    grouped_channels: int = 64


@dataclass(frozen=True)
class DirectConvNumbers:
    """Depthwise convolutions, chains of them and 1x1 ones, and convolutions in NCHW (docs/decisions/0048, 0066).

    depthwise_channels: of a block, at most. depthwise_band_bytes: input rows of a band that one output row reads,
    in the first cache. depthwise_work, nchw_task_work: multiply-adds below which a task is not worth a chunk of its
    own. chain_bytes: rows of the map that the depthwise convolution reads, of a band. chain_rows: output rows of a
    task, at least, where there are tasks for all workers. nchw_outputs: of a tile, and of a group of weights.
    nchw_columns: of the input, of a block, about; nchw_whole: that blocks are a multiple of. nchw_strip_bytes: of a
    block, about. nchw_vectors: of a tile's row, for tiles of 1, 2, ... outputs: sums, inputs and a weight fit into
    the registers (without multiply-adds a product too), and hide the latency.
    """

    depthwise_channels: int = 96
    depthwise_band_bytes: int = L1 * 5 // 8
    depthwise_work: int = 1 << 15
    chain_bytes: int = L2
    chain_rows: int = 28
    nchw_outputs: int = 4
    nchw_columns: int = 1024
    nchw_whole: int = 64
    nchw_strip_bytes: int = L2 // 2
    nchw_task_work: int = 1 << 18
    nchw_vectors: tuple[int, ...] = (8, 8, 6, 5)


@dataclass(frozen=True)
class WinogradNumbers:
    """Winograd's convolutions (docs/decisions/0011, 0054, 0078).

    winograd_tiles: of a block: points and sums stay near the second cache. winograd_weights: bytes of weights that
    stay there; more are read by blocks of more_tiles. made_panels: panels whose weights are made at a time.
    least_part: panels, and tiles, of a task, at least.
    """

    winograd_tiles: int = 56
    more_tiles: int = 70
    winograd_weights: int = 2 * L2
    made_panels: int = 2
    least_part: int = 4


@dataclass(frozen=True)
class KernelNumbers:
    """All of them, of a level."""

    caches: CacheNumbers = CacheNumbers()
    loops: LoopNumbers = LoopNumbers()
    sorting: SortNumbers = SortNumbers()
    products: ProductNumbers = ProductNumbers()
    few_rows: FewRowNumbers = FewRowNumbers()
    quantised: QuantisedNumbers = QuantisedNumbers()
    matrix_tiles: MatrixTileNumbers = MatrixTileNumbers()
    blocking: BlockingNumbers = field(default_factory=lambda: BlockingNumbers.of(BLOCKING))
    attention: AttentionNumbers = AttentionNumbers()
    convolutions: ConvNumbers = ConvNumbers()
    direct: DirectConvNumbers = DirectConvNumbers()
    winograd: WinogradNumbers = WinogradNumbers()


_OWN = KernelNumbers()
_WIDE = replace(_OWN.few_rows, few_rows=16, few_vectors=(8, 4, 4, 4))  # 32 registers
#: by the level of compiler/machine/cpu.py
KERNEL_NUMBERS: dict[str, KernelNumbers] = {
    "x86-64-v2": replace(
        _OWN,
        quantised=QuantisedNumbers(mixed_rows=2, integer_tile_rows=(2, 1)),
        direct=DirectConvNumbers(nchw_vectors=(8, 4, 3, 2)),
    ),
    "x86-64-v3": replace(_OWN, direct=DirectConvNumbers(nchw_vectors=(8, 5, 3, 3))),
    "x86-64-v4": replace(
        _OWN,
        loops=LoopNumbers(held_vectors=16, strip_vectors=24, short_row_prefetch=4096, window_vectors=20),
        few_rows=_WIDE,
        quantised=QuantisedNumbers(
            mixed_rows=8, mixed_accumulators=16, integer_tile_rows=(8, 6), integer_tile_panels=(3, 2)
        ),
    ),
    "aarch64": replace(
        _OWN,
        loops=LoopNumbers(window_vectors=20),
        few_rows=_WIDE,
        quantised=QuantisedNumbers(integer_tile_rows=(5, 3)),
    ),
}
