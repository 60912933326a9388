"""torch's CUDA generator in numpy: the numbers that torch.rand(..., device="cuda") and its like draw after
torch.cuda.manual_seed(seed), from the layout of its kernels and cuRAND's conversions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from mycc.compiler.ir.philox import philox as blocks_of


def philox(seed: int, block: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """Four words, in front, of each block of each thread's line (Philox 4x32-10)."""
    return np.stack(blocks_of(*(np.asarray(x, np.uint64) for x in (seed & (2**64 - 1), block, thread))))


@dataclass
class CudaGenerator:
    """resident: blocks of 256 threads that the device holds at a time. drawn: blocks of words of each thread so far."""

    seed: int
    resident: int
    drawn: int = 0

    def _lines(self, n: int, each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Thread, block and turn of every element of n."""
        threads = 256 * min(self.resident, -(-n // 256))
        e = np.arange(n)
        turn = e // threads
        self.drawn, first = self.drawn + (-(-n // (threads * each)) if n else 0), self.drawn
        return e % threads, first + turn // each, turn % each, threads

    def words(self, n: int) -> np.ndarray:
        thread, block, slot, _ = self._lines(n, 4)
        return np.take_along_axis(philox(self.seed, block, thread), slot[None], 0)[0]

    def wide(self, n: int) -> np.ndarray:
        """64 bits each."""
        thread, block, slot, _ = self._lines(n, 2)
        w = philox(self.seed, block, thread)
        pairs = np.stack(((w[0] << np.uint64(32)) | w[1], (w[2] << np.uint64(32)) | w[3]))
        return np.take_along_axis(pairs, slot[None], 0)[0]

    def unit(self, n: int) -> torch.Tensor:
        """float32 in (0, 1]."""
        return _unit(self.words(n))

    def unit64(self, n: int) -> torch.Tensor:
        thread, block, slot, _ = self._lines(n, 2)
        w = philox(self.seed, block, thread)
        pairs = np.stack((w[0] ^ (w[1] << np.uint64(21)), w[2] ^ (w[3] << np.uint64(21))))
        return torch.from_numpy(np.take_along_axis(pairs, slot[None], 0)[0].astype(np.float64) * 2**-53 + 2**-54)

    def normal(self, n: int) -> torch.Tensor:
        """float64, of float32's uniform numbers."""
        thread, block, slot, _ = self._lines(n, 4)
        w = philox(self.seed, block, thread).astype(np.float64)
        radius, turn = (np.where(slot < 2, w[k], w[k + 2]) for k in (0, 1))
        return _box_muller(radius * 2**-32 + 2**-33, turn * 2**-31 + 2**-32, slot % 2)

    def normal64(self, n: int) -> torch.Tensor:
        thread, block, slot, _ = self._lines(n, 2)
        w = philox(self.seed, block, thread)
        radius, turn = (w[k] ^ (w[k + 1] << np.uint64(21)) for k in (0, 2))
        return _box_muller(radius.astype(np.float64) * 2**-53 + 2**-54, turn.astype(np.float64) * 2**-52 + 2**-53, slot)

    def of_probabilities(self, n: int) -> torch.Tensor:
        """The numbers that a tensor of probabilities is compared with."""
        e = np.arange(n)
        self.drawn, first = self.drawn + 3, self.drawn
        return _unit(np.take_along_axis(philox(self.seed, np.full(n, first), e // 4), e[None] % 4, 0)[0])

    def dropout(self, n: int, size: int) -> torch.Tensor:
        """Those of a dropout of elements of `size` bytes."""
        together = next(v for v in (8, 4, 2, 1) if v <= 16 // size and n % v == 0)
        if together == 1:
            return self.unit(n)
        first = self.drawn
        *_, threads = self._lines(n, 4)
        group, slot = np.divmod(np.arange(n), together)
        block = first + group // threads * -(-together // 4) + slot // 4
        return _unit(np.take_along_axis(philox(self.seed, block, group % threads), slot[None] % 4, 0)[0])


def _unit(words: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(words.astype(np.float32) * np.float32(2**-32) + np.float32(2**-33))


def _box_muller(u: np.ndarray, half_turns: np.ndarray, cosine: np.ndarray) -> torch.Tensor:
    angle = np.pi * half_turns
    return torch.from_numpy(np.sqrt(-2 * np.log(u)) * np.where(cosine, np.cos(angle), np.sin(angle)))
