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
    """

    name: str
    lanes: int
    registers: int
    fused: bool
    tile_panels: tuple[int, ...]


#: x86-64 psABI, section 3.1.1 (micro-architecture levels); Arm Architecture Reference Manual, A1.4
CPUS: dict[str, Cpu] = {
    cpu.name: cpu
    for cpu in (
        # 12 accumulators, 3 broadcasts, 1 product
        Cpu("x86-64-v2", lanes=4, registers=16, fused=False, tile_panels=(2, 1, 1)),
        # 6 x 16 has 12 accumulators, 2 of B, a broadcast
        Cpu("x86-64-v3", lanes=8, registers=16, fused=True, tile_panels=(4, 2, 2, 1, 1, 1)),
        # 8 x 48 has 24 accumulators, 3 of B; more rows would need more pointers than there are general registers. A
        # single row takes four panels, each a stream of memory, or one where one is as fast (0087).
        Cpu("x86-64-v4", lanes=16, registers=32, fused=True, tile_panels=(4, 4, 4, 4, 4, 4, 3, 3)),
        # 6 x 16 has 24 accumulators, 4 of B
        Cpu("aarch64", lanes=4, registers=32, fused=True, tile_panels=(2, 2, 2, 1, 1, 1)),
    )
}
