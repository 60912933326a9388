"""The tiles of the matrix kernels of GPUs: the part of a plan that is measured, and that a lock file repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


class Shares:
    """A tile that several programs may share: `split` of them."""

    split: int

    @property
    def shared(self) -> bool:
        """Whether there are several."""
        return self.split > 1

    @property
    def shares(self) -> str:
        """What the name of a kernel says of them."""
        return f"_s{self.split}" if self.shared else ""


@dataclass(frozen=True)
class GemmTile(Shares):
    """How a matrix product is cut. m, n, k: the tile and the step; n is the sum of `parts` (192 = 128 + 64).

    split: programs that share a tile, each a run of k. group: rows of tiles that run together. descriptors: operands
    come through tensor descriptors, and `together` programs of each multiprocessor walk over tiles; flatten: a hint
    for that walk. specialize: some warps of the walk load, the others multiply, each half of the rows. halves: the tile
    is finished in two halves. vector: one row of a, multiplied without tensor cores.
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
    """How attention is cut: m query rows by n keys a step; split: programs that share the rows, each a run of keys.

    descriptors: queries, keys and values come through tensor descriptors.
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
