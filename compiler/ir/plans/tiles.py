"""The tiles of the matrix kernels of GPUs: the part of a plan that is measured, and that a lock file repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


class Shares:
    """A tile whose reduction may be split among programs: `split` of them."""

    split: int

    @property
    def shared(self) -> bool:
        """Whether several programs compute one tile."""
        return self.split > 1

    @property
    def shares(self) -> str:
        """The suffix of the kernel's name."""
        return f"_s{self.split}" if self.shared else ""


@dataclass(frozen=True)
class GemmTile(Shares):
    """How a matrix product is tiled. m, n: the tile; k: the step of its loop. n is the sum of `parts` (192 = 128 + 64).

    split: how many programs share a tile, each with a part of k (split-K). group: how many rows of tiles run together.
    descriptors: operands are loaded through tensor descriptors, and `together` persistent programs on each
    multiprocessor iterate over the tiles; flatten: a hint for that loop. specialize: some warps of these programs load,
    and the others multiply half of the rows each. halves: the epilogue runs on two halves of the tile. vector: a matrix
    of one row is multiplied without tensor cores.
    """

    m: int
    n: int
    k: int
    warps: int = 4
    stages: int = 3
    split: int = 1
    group: int = 8
    descriptors: bool = False
    together: int = 1
    flatten: bool = False
    specialize: bool = False
    halves: bool = False
    vector: bool = False

    @property
    def parts(self) -> tuple[int, ...]:
        """Powers of two that add up to n, the largest first."""
        return tuple(1 << i for i in reversed(range(self.n.bit_length())) if self.n >> i & 1)

    def __str__(self) -> str:
        split = f" split {self.split}" if self.split > 1 else ""
        kind = " descriptors" if self.descriptors else " vector" if self.vector else ""
        return f"{self.m}x{self.n}x{self.k}{split}{kind}{' specialize' if self.specialize else ''}"


@dataclass(frozen=True)
class AttentionTile(Shares):
    """How attention is tiled: m query rows by n keys in each step. split: how many programs share the rows, each with a
    part of the keys. descriptors: queries, keys and values are loaded through tensor descriptors.
    """

    m: int
    n: int
    warps: int = 4
    stages: int = 2
    split: int = 1
    descriptors: bool = False

    def __str__(self) -> str:
        split = f" split {self.split}" if self.split > 1 else ""
        return f"{self.m}x{self.n}{split}" + (" descriptors" if self.descriptors else "")


Tile: TypeAlias = GemmTile | AttentionTile
