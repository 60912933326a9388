"""Register tiles of products, by level: which ones there are, and how the loop over k of each runs."""

from __future__ import annotations

from dataclasses import dataclass

from ...machine.cpu import CPUS, PANEL, Cpu


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
        return any(loop.leaves for loop in self.unrolled)

    @property
    def single(self) -> bool:
        """Whether it has one row, whose panels are streams of memory."""
        return self.rows == 1

    @property
    def several_sums(self) -> bool:
        """Whether an element has more than one sum."""
        return self.sums > 1

    @property
    def one_panel(self) -> bool:
        """Whether its panel is the one stream that it reads."""
        return self.panels == 1

    @property
    def last_result(self) -> int:
        """The last of the rows of results that it fetches in turns, whose number is a power of two."""
        return 7 if self.rows > 4 else 3


def widths(widest: int) -> tuple[int, ...]:
    """Panels of the tiles of a row count, the widest last: with them any number of panels can be covered."""
    return (*(p for p in (1, 2) if p < widest), widest)


@dataclass(frozen=True)
class TileSet:
    """The tiles of an instruction set.

    cpu: its registers.
    panels: for row counts 1, 2, ... the panels of the widest tile, as the machine's row has them.
    """

    cpu: Cpu
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
        return self.cpu.row_sums

    def _fetches(self, rows: int, panels: int) -> bool:
        return rows * panels * PANEL // self.cpu.lanes >= self.cpu.hidden_sums

    def _streams(self, rows: int, panels: int) -> bool:
        """Few sums pass over a panel once more for every few rows: so those of 8 lanes, from half their height on."""
        return panels in self.cpu.streamed_panels and 2 * rows > len(self.panels)

    def _unrolled(self, rows: int, panels: int) -> tuple[UnrolledLoop, ...]:
        """Long ones for large tiles of 16 lanes.

        Short ones for tiles that stream: where another thread shares the core, what is not a multiply-add counts.
        """
        if self._streams(rows, panels):
            return tuple(UnrolledLoop(*row) for row in self.cpu.stream_loops)
        return tuple(UnrolledLoop(*row) for row in self.cpu.long_loops) if self._fetches(rows, panels) else ()

    def _rows_first(self, rows: int, panels: int) -> bool:
        width = panels * PANEL // self.cpu.lanes
        needed = rows * width + rows + 1 + (0 if self.cpu.fused else 1)  # without fusion a product has a register
        return rows < width and needed <= self.cpu.registers

    @property
    def value_panels(self) -> tuple[int, ...]:
        """Panels of attention's tiles of values, which are as tall as the tallest tile; (): there are none.

        A panel is one vector. Beside two of them and a broadcast, making weights takes registers of its own.
        """
        rows, widest = len(self.panels), 2
        needed = rows * widest + widest + 1 + self.cpu.weight_registers
        one_vector = self.cpu.lanes == PANEL
        return tuple(range(1, widest + 1)) if one_vector and needed <= self.cpu.registers else ()


TILE_SETS: dict[str, TileSet] = {name: TileSet(cpu, cpu.tile_panels) for name, cpu in CPUS.items()}
