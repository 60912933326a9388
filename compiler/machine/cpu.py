"""The facts of CPUs that loops are planned by: a row for each level, and what all of them share.

A package holds code for several levels, and a level runs on many processors. So the sizes of caches are those that
the common processors of a level have at least, and the distances are those that did best on the machines that were
measured (AMD Zen 1 to 5, Intel Xeons from Skylake to Sapphire Rapids; docs/decisions has the measurements).
"""

from __future__ import annotations

from dataclasses import dataclass

# --- facts of every level ---------------------------------------------------------------------------------------------

#: bytes of a line of a cache (Intel and AMD optimization manuals; Arm Neoverse and Cortex-A technical references)
LINE = 64
#: bytes of a page, at whose end hardware prefetchers stop
PAGE = 4096
#: bytes of the first level data cache: 32 KiB of Zen 1 to 5 and Skylake, 48 KiB since Ice Lake
L1 = 32 << 10
#: bytes of the second level cache: 256 KiB of client Skylakes, 512 KiB to 2 MiB of the others
L2 = 256 << 10
#: addresses that are a multiple of this apart lie in one set of the first level cache: 64 sets of a line each
SET_STRIDE = 64 * LINE
#: float32 elements of the longest vector of any level: blocks that are a multiple of it are whole vectors on each
WIDEST_LANES = 16
#: columns of a panel of the packed operand of a product: a line of float32, one vector of the longest
PANEL = 16

#: taps along a row with depthwise tiles of their own; pixels of such a tile (measured: docs/decisions/0077)
DEPTHWISE_TAPS, DEPTHWISE_PIXELS = (3, 5, 7), (7, 4)

# --- sizes beyond which memory is what counts (measured: docs/decisions/0070, 0102) -----------------------------------

#: bytes of a result that is written by non-temporal stores: it would leave the caches before anybody reads it
NONTEMPORAL = 1 << 24
#: the same where the kernel reads so much, or writes in tiles, that nothing of the result would stay
NONTEMPORAL_BESIDE, READ_BESIDE = 1 << 23, 1 << 25
#: bytes of an operand that is a stream from memory; of a smaller one the caches hold what is read again
STREAM = 1 << 20
#: bytes of a result of which a second level cache holds so little that the order of the loops counts
BEYOND_L2 = 1 << 23
#: bytes of a sample of which the share of a thread in a third level cache holds two; bytes of all that it does not hold
L3_SHARE, BEYOND_L3 = 1 << 23, 1 << 25

# --- software prefetch: bytes ahead of their use (measured: docs/decisions/0057, 0059, 0091) ---------------------

#: of a stream into the first level cache; a whole page is worse than its neighbours
STREAM_PREFETCH = 6144
#: of a map that computes long on each element
LONG_MAP_AHEAD = 4096
#: of four streams that a reduction reads at once
REDUCTION_AHEAD = 2048
#: of each of several long rows that windows slide over
ROWS_AHEAD = 1024
#: elements, of all the streams of pipelined rows together
PIPELINED_PREFETCH = 1536
#: elements, of reductions down columns: of rows in general; of wide rows; and of wide rows whose argmax is kept
COLUMNS_AHEAD, WIDE_COLUMNS_AHEAD, WIDE_ARGMAX_AHEAD = 2048, 1024, 2048
#: rows, of reductions down columns that keep an argmax
ARGMAX_ROWS_AHEAD = 16
#: bytes that are on their way from memory and not read yet, at most
IN_FLIGHT = 4096


@dataclass(frozen=True)
class Cpu:
    """A level of an instruction set.

    Attributes:
        name: as the folders of a package and GCC's -march call it.
        lanes: float32 elements of a vector register.
        registers: vector registers.
        fused: whether there is a fused multiply-add.
        tile_panels: of products: for results of 1, 2, ... rows the panels of the widest register tile; its length is
            the height of the tallest one. A tile needs rows * panels * PANEL / lanes accumulators: enough of them to
            hide the latency of the multiply-add, few enough to leave registers for one row of B and a broadcast of A.
        row_sums: of an element of a single row, so that a panel of one vector hides the latency by itself.
        hidden_sums: multiply-adds that leave instructions time to fetch; beside 12, two a cycle, it takes longer.
        streamed_panels: panels of the tiles that fetch their own panel into the first cache, from half their height on:
            few sums pass over a panel once more for every few rows.
        long_loops, stream_loops: of tiles that fetch, and of those that stream, the loops over k: values of k of a
            turn, how many it leaves to the loop behind it, values of k for which it fetches a line of each next panel,
            whether it is for products alone that need no more, and whether it fetches places of results. Fetching what
            is on its way already, and reckoning what to fetch, takes as long as multiply-adds do (Intel, and where
            another thread shares the core): so the loop is chosen by how much there is to fetch, and the results, at
            most 8 rows of 4 lines, are fetched in the last turns alone.
        weight_registers: that attention's tiles of values need to make weights.
        runs, run_panels: of convolutions: most runs of neighbouring pixels of a tile, and for runs of 1, 2, ... pixels
            the panels of the widest one.
        long_run, run_taps: pixels of a run of one panel, where rows are whole such runs (0: there are none), and taps
            of kernel rows that tiles of such runs hold. A vector of weights then multiplies twice as many pixels.
        long_every: values of k for which a tile of long runs fetches a line: its neighbours share the next weights.
        least_halved: pixels from which a tile has a half for a last panel of 8 columns; 0: there are none.
        run_turn: values of k of a turn of the tiles that do most of the work (docs/decisions/0077).
    """

    name: str
    lanes: int
    registers: int
    fused: bool
    tile_panels: tuple[int, ...]
    run_panels: tuple[int, ...]
    runs: int = 1
    row_sums: int = 1
    hidden_sums: int = 16
    streamed_panels: tuple[int, ...] = ()
    long_loops: tuple[tuple[int, int, int, bool, bool], ...] = ()
    stream_loops: tuple[tuple[int, int, int, bool, bool], ...] = ()
    weight_registers: int = 11
    long_run: int = 0
    run_taps: tuple[int, ...] = ()
    long_every: int = 4
    least_halved: int = 0
    run_turn: int = 1


#: of the longest vectors (measured: docs/decisions/0087)
LONG_LOOPS = ((4, 64, 4, True, False), (4, 64, 2, True, False), (4, 64, 1, False, False), (4, 0, 1, False, True))

#: x86-64 psABI, section 3.1.1 (micro-architecture levels); Arm Architecture Reference Manual, A1.4
CPUS: dict[str, Cpu] = {
    cpu.name: cpu
    for cpu in (
        # 12 accumulators, 3 broadcasts, 1 product
        Cpu("x86-64-v2", lanes=4, registers=16, fused=False, tile_panels=(2, 1, 1), run_panels=(2, 1, 1)),
        # 6 x 16 has 12 accumulators, 2 of B or of weights, a broadcast
        Cpu(
            "x86-64-v3", lanes=8, registers=16, fused=True, tile_panels=(4, 2, 2, 1, 1, 1),
            run_panels=(2, 2, 2, 1, 1, 1), streamed_panels=(1,), stream_loops=((2, 0, 1, False, False),),
        ),
        # 8 x 48 has 24 accumulators, 3 of B; more rows would need more pointers than there are general registers. A
        # single row takes four panels, each a stream of memory, or one where one is as fast (0087). Two runs of 7 are
        # 28 accumulators, 2 of weights, a broadcast: whole rows of maps that are 7, 14, 28, 56 wide. So are two runs of
        # 14 by one panel: 14 accumulators, 7 taps of weights at most, two broadcasts.
        Cpu(
            "x86-64-v4", lanes=16, registers=32, fused=True, tile_panels=(4, 4, 4, 4, 4, 4, 3, 3), row_sums=4,
            long_loops=LONG_LOOPS, runs=2, run_panels=(2, 2, 2, 2, 2, 2, 2), long_run=14, run_taps=(3, 5, 7),
            least_halved=4, run_turn=4,
        ),
        # 6 x 16 has 24 accumulators, 4 of B or of weights, a broadcast
        Cpu(
            "aarch64", lanes=4, registers=32, fused=True, tile_panels=(2, 2, 2, 1, 1, 1),
            run_panels=(2, 2, 2, 1, 1, 1),
        ),
    )
}  # fmt: skip
