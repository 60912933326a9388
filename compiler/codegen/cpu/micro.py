"""Register tiles of the GEMM family: which ones an instruction set has, and the header and units that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...machine.cpu import CPUS, LINE, PANEL, Cpu
from ..environments import environment
from .conv_tiles import RUN_TILE_SETS, RunTileSet

DEPTHWISE_TAPS = (3, 5, 7)  # kernel widths with tiles of their own
DEPTHWISE_PIXELS = (7, 4)  # of such a tile
FETCHING = 16  # multiply-adds that leave instructions time to fetch; beside 12, two a cycle, it takes longer


@dataclass(frozen=True)
class UnrolledLoop:
    """A loop of a tile over k that takes several values in a turn.

    length: values of k of a turn. leaves: how many it leaves to the loop behind it, beside those that fill no turn.
    prefetch_every: values of k for which it fetches a line of each panel that comes next; bounded: it is for products
    alone that need no more.
    results: it fetches the places of the results.
    """

    length: int
    leaves: int = 0
    prefetch_every: int = 1
    bounded: bool = False
    results: bool = False


#: Fetching what is on its way already, and reckoning what to fetch, takes as long as multiply-adds do (Intel, and where
#: another thread shares the core): so the loop is chosen by how much there is to fetch, and the results, at most 8 rows
#: of 4 lines, are fetched in the last turns alone.
LONG_LOOPS = (
    UnrolledLoop(4, leaves=64, prefetch_every=4, bounded=True),
    UnrolledLoop(4, leaves=64, prefetch_every=2, bounded=True),
    UnrolledLoop(4, leaves=64),
    UnrolledLoop(4, results=True),
)
SHORT_LOOPS = (UnrolledLoop(2),)


@dataclass(frozen=True)
class Tile:
    """A register tile: `rows` of A by `panels` panels (16 columns each) of B.

    rows_first: the loop over k holds a broadcast of every row and takes the vectors of B one by one; else it holds B
    and takes the rows one by one.
    fetches: it fetches the places of its results among its multiply-adds; where it is the tallest and has no turns, the
    next rows of A too.
    streams: it fetches its own panel into the first cache, a little ahead of its use, and the next one into the second.
    turns: its loops over several values of k; what is left is taken one by one.
    sums: of an element, each over every so-manieth value of k, which a loop of so many takes in a turn.
    """

    rows: int
    panels: int
    rows_first: bool
    fetches: bool
    streams: bool
    unrolled: tuple[UnrolledLoop, ...]
    sums: int

    @property
    def in_place(self) -> bool:
        """Whether it needs every register, so that sums must stay where they are."""
        return self.unrolled == LONG_LOOPS


def widths(widest: int) -> tuple[int, ...]:
    """Panels of the tiles of a row count, the widest last: with them any number of panels can be covered."""
    return (*(p for p in (1, 2) if p < widest), widest)


@dataclass(frozen=True)
class TileSet:
    """The tiles of an instruction set.

    cpu: its registers; constraint: their letter in inline assembly.
    panels: for row counts 1, 2, ... the panels of the widest tile, as the machine's row has them.
    """

    cpu: Cpu
    constraint: str
    panels: tuple[int, ...]

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Every tile: a row count also has narrower tiles, for the last panels of a block."""
        sizes = ((rows, p) for rows, widest in enumerate(self.panels, 1) for p in widths(widest))
        return tuple(self._tile(*s) for s in sizes)

    def _tile(self, rows: int, panels: int) -> Tile:
        flags = self._rows_first(rows, panels), self._fetches(rows, panels), self._streams(rows, panels)
        return Tile(rows, panels, *flags, self._unrolled(rows, panels), self.row_sums if rows == 1 else 1)

    @property
    def row_sums(self) -> int:
        """Sums of an element of a single row.

        A panel of one vector has to hide the latency of multiply-adds by itself, as panels that are read together are
        streams of memory of their own. As many sums of four panels fit the registers, too.
        """
        return 4 if self.cpu.lanes == PANEL else 1

    def _fetches(self, rows: int, panels: int) -> bool:
        return rows * panels * PANEL // self.cpu.lanes >= FETCHING

    def _streams(self, rows: int, panels: int) -> bool:
        """Few sums pass over a panel once more for every few rows: so those of 8 lanes, from half their height on."""
        return self.cpu.lanes == 8 and panels == 1 and 2 * rows > len(self.panels)

    def _unrolled(self, rows: int, panels: int) -> tuple[UnrolledLoop, ...]:
        """Long ones for large tiles of 16 lanes.

        Short ones for tiles that stream: where another thread shares the core, what is not a multiply-add counts.
        """
        if self._streams(rows, panels):
            return SHORT_LOOPS
        return LONG_LOOPS if self.cpu.lanes == PANEL and self._fetches(rows, panels) else ()

    def _rows_first(self, rows: int, panels: int) -> bool:
        width = panels * PANEL // self.cpu.lanes
        needed = rows * width + rows + 1 + (0 if self.cpu.fused else 1)  # without fusion a product has a register
        return rows < width and needed <= self.cpu.registers

    @property
    def value_panels(self) -> tuple[int, ...]:
        """Panels of attention's tiles of values, which are as tall as the tallest tile; (): there are none.

        A panel is one vector. Beside two of them and a broadcast, making weights takes 11 registers.
        """
        rows, widest = len(self.panels), 2
        needed = rows * widest + widest + 1 + 11
        return tuple(range(1, widest + 1)) if self.cpu.lanes == PANEL and needed <= self.cpu.registers else ()


#: the letter of vector registers in inline assembly
CONSTRAINTS = {"x86-64-v2": "x", "x86-64-v3": "x", "x86-64-v4": "v", "aarch64": "w"}
TILE_SETS: dict[str, TileSet] = {name: TileSet(cpu, CONSTRAINTS[name], cpu.tile_panels) for name, cpu in CPUS.items()}


def render_micro_kernels(isa: str, bodies: bool = True) -> str:
    """The text of micro_kernels.h (included by kernels/gemm/gemm.h) for an instruction set level.

    isa: one of TILE_SETS; bodies: with the tiles, else render_tile_units has them. Raises ValueError for another level.
    """
    if isa not in TILE_SETS:
        raise ValueError(f"no GEMM tiles for {isa!r}; there are tiles for {', '.join(TILE_SETS)}")
    return render_tile_set(isa, TILE_SETS[isa], RUN_TILE_SETS[isa], bodies)


def render_tile_units(isa: str, elements: Sequence[str], convolutions: bool) -> dict[str, str]:
    """Translation units of the register tiles, by name: they are compiled once, however many units call them, and their
    texts are the same for every model.

    elements: C++ types that panels of products are stored in; convolutions: whether there are any.
    """
    found: dict[str, tuple[str, tuple[str, ...]]]
    found = {f"tiles_{e}.cpp": ("gemm_tiles.cpp.j2", (e,)) for e in elements}
    if convolutions:
        found["tiles_conv.cpp"] = ("conv_tiles.cpp.j2", ())
    facts = _facts(isa, TILE_SETS[isa], RUN_TILE_SETS[isa])
    template = environment("cpu").get_template("tiles.cpp.j2")
    return {
        name: template.render(**facts, tiles_template=tiles, elements=types, linkage="")
        for name, (tiles, types) in found.items()
    }


def render_tile_set(isa: str, tile_set: TileSet, runs: RunTileSet, bodies: bool = True) -> str:
    """The header for tile sets of one's own (tests and benchmarks try others than those of the tables)."""
    template = environment("cpu").get_template("micro_kernel.h.j2")
    return template.render(**_facts(isa, tile_set, runs), bodies=bodies, elements=(), linkage="inline ")


def _facts(isa: str, tile_set: TileSet, runs: RunTileSet) -> dict[str, Any]:
    """What the templates of tiles are told."""
    return {
        "isa": isa,
        "lanes": tile_set.cpu.lanes,
        "constraint": tile_set.constraint,
        "max_rows": len(tile_set.panels),
        "tiles": tile_set.tiles,
        "in_place": any(t.unroll > 1 for t in runs.tiles),
        "row_widths": sorted({t.panels * PANEL // tile_set.cpu.lanes for t in tile_set.tiles if t.in_place}),
        "line": LINE,
        "best": tile_set.panels,
        "row_sums": tile_set.row_sums,
        "widths": [widths(p) for p in tile_set.panels],
        "vectors": PANEL // tile_set.cpu.lanes,
        "value_rows": len(tile_set.panels) if tile_set.value_panels else 0,
        "value_panels": tile_set.value_panels,
        "taps": DEPTHWISE_TAPS,
        "pixels": DEPTHWISE_PIXELS,
        "run_tiles": runs.tiles,
        "max_runs": runs.runs,
        "run_panels": runs.panels,
        "long_run": runs.long_run,
        "tap_tiles": runs.tap_tiles,
        "tap_rows": runs.taps,
    }
