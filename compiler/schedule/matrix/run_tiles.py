"""Register tiles of the convolutions, by instruction set: runs of pixels by panels of 16 output channels."""

from __future__ import annotations

from dataclasses import dataclass

from ...machine.cpu import CPUS, PANEL, Cpu


@dataclass(frozen=True)
class RunTile:
    """`runs` runs of `pixels` neighbours each, by `panels` panels.

    pixels_first: the loop over k holds a broadcast of every pixel and takes the vectors of weights one by one; else it
    holds the weights and takes the pixels one by one.
    halved: the last panel, one vector, has 8 columns twice, and a pixel of either run has a half of its sums.
    every: values of k for which it fetches a line of the next weights. unroll: values of k that a turn of its loop
    takes, as there are (docs/decisions/0077).
    """

    runs: int
    pixels: int
    panels: int
    pixels_first: bool = False
    halved: bool = False
    unroll: int = 1
    every: int = 2

    @property
    def unrolled(self) -> bool:
        """Whether its loop takes several values of k in a turn."""
        return self.unroll > 1

    @property
    def name(self) -> str:
        return f"runs_{self.runs}x{self.pixels}x{self.panels * PANEL - self.halved * PANEL // 2}"


@dataclass(frozen=True)
class TapTile:
    """A run of `pixels` by one panel, whose taps of a kernel row are held: a pixel of the input is broadcast once for
    all that it counts for. front, back: pixels of zeros that the input begins and ends with, which are left out.

    Both halves of a run take turns, so that no sum waits for its last product.
    """

    taps: int
    pixels: int
    front: int
    back: int

    @property
    def name(self) -> str:
        return f"taps_{self.taps}_{self.front}_{self.back}"

    @property
    def products(self) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        """A pixel of the input for each turn, and the pairs of a sum and a tap that it counts for."""
        half = self.pixels // 2
        return tuple(
            (at, tuple((at - t, t) for t in range(self.taps) if 0 <= turn - t < half))
            for turn in range(half + self.taps - 1)
            for at in (turn, half + turn)
            if self.front <= at < self.pixels + self.taps - 1 - self.back
        )


@dataclass(frozen=True)
class RunTileSet:
    """The tiles of an instruction set.

    cpu: its registers.
    runs: of a tile, at most. panels: for 1, 2, ... pixels of a run the panels of its widest tile.
    long_run: pixels of a run of one panel, where rows are whole such runs; 0: there are none. A vector of weights then
    multiplies twice as many pixels. taps: of kernel rows that tiles hold, of such runs.
    """

    cpu: Cpu
    runs: int
    panels: tuple[int, ...]
    long_run: int = 0
    taps: tuple[int, ...] = ()

    @property
    def tiles(self) -> tuple[RunTile, ...]:
        """The register tiles of runs of pixels; those of long runs last."""
        of_long_runs = (
            RunTile(runs, self.long_run, 1, unroll=self._unroll(runs, False), every=self.cpu.long_every)
            for runs in range(1, self.runs + 1)
        )
        return (*self._tiles(), *(of_long_runs if self.long_run else ()))

    @property
    def tap_tiles(self) -> tuple[TapTile, ...]:
        """For each number of taps: within a row, at its beginning, and at its end."""
        ends = ((taps, zeros) for taps in self.taps for zeros in ((0, 0), (taps // 2, 0), (0, taps // 2)))
        return tuple(TapTile(taps, self.long_run, *zeros) for taps, zeros in ends)

    def _tiles(self) -> tuple[RunTile, ...]:
        return tuple(
            RunTile(runs, pixels, p, not half and self._pixels_first(runs * pixels, p), half, self._unroll(runs, half))
            for runs in range(1, self.runs + 1)
            for pixels, widest in enumerate(self.panels, 1)
            for p in range(1, widest + 1)
            for half in (False, True)
            if not half or self._halves(runs, pixels, p)
        )

    def _halves(self, runs: int, pixels: int, panels: int) -> bool:
        """Whether there is such a tile for a last panel of 8 columns: not of few pixels, which are few of all."""
        least = self.cpu.least_halved
        return bool(least) and panels == 2 and runs == self.runs and pixels >= least

    def _unroll(self, runs: int, halved: bool) -> int:
        """Several values of k for the tiles that do most of the work: all that are unrolled take time to compile."""
        return self.cpu.run_turn if runs == self.runs and not halved else 1

    def _pixels_first(self, pixels: int, panels: int) -> bool:
        width = panels * PANEL // self.cpu.lanes
        needed = pixels * width + pixels + 1 + (0 if self.cpu.fused else 1)  # without fusion a product has a register
        return pixels < width and needed <= self.cpu.registers


RUN_TILE_SETS: dict[str, RunTileSet] = {
    name: RunTileSet(cpu, cpu.runs, cpu.run_panels, cpu.long_run, cpu.run_taps) for name, cpu in CPUS.items()
}
