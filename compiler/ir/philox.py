"""References of random numbers on GPUs: Philox 4x32-10 (Salmon et al., 2011), and what cuRAND makes of its words.

The operators take torch tensors of int64: the seed, the block of words, the thread, and which number of the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Words = NDArray[np.uint64]
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def _block(*operands: torch.Tensor) -> tuple[Words, ...]:
    """The four words of a block: of seed, block and thread."""
    return philox(*(np.atleast_1d(t.numpy()).view(np.uint64) for t in operands))


def philox(seed: Words, block: Words, thread: Words) -> tuple[Words, ...]:
    """The four words of each block of each thread's line, in 64 bits each."""
    seed, block, thread = np.broadcast_arrays(seed, block, thread)
    low, high = seed & LOW, seed >> HALF
    a, b, c, d = block & LOW, block >> HALF, thread & LOW, thread >> HALF
    for _ in range(10):
        left, right = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (right >> HALF) ^ b ^ low, right & LOW, (left >> HALF) ^ d ^ high, left & LOW
        low, high = low + np.uint64(0x9E3779B9) & LOW, high + np.uint64(0xBB67AE85) & LOW
    return a, b, c, d


def _wide(low: Words, high: Words) -> NDArray[np.float64]:
    """Two words as a whole number of 53 bits."""
    return (low ^ high << np.uint64(21)).astype(np.float64)


def _tensor(values: NDArray[Any], operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
    import torch

    shape = torch.broadcast_shapes(*(t.shape for t in operands))
    return torch.from_numpy(np.ascontiguousarray(values)).broadcast_to(shape).clone()


def random_word(*operands: torch.Tensor) -> torch.Tensor:
    """32 random bits."""
    slot = np.atleast_1d(operands[3].numpy())
    chosen = np.choose(slot, _block(*operands[:3]))
    return _tensor(chosen.astype(np.int64), operands)


def random_unit(*operands: torch.Tensor) -> torch.Tensor:
    """In (0, 1], of 53 bits."""
    slot = np.atleast_1d(operands[3].numpy())
    a, b, c, d = _block(*operands[:3])
    drawn = np.where(slot == 0, _wide(a, b), _wide(c, d)) * 2.0**-53 + 2.0**-54
    return _tensor(drawn, operands)


def random_normal(*operands: torch.Tensor) -> torch.Tensor:
    """Of mean 0 and deviation 1, four of a block (Box and Muller)."""
    slot = np.atleast_1d(operands[3].numpy())
    a, b, c, d = (w.astype(np.float64) for w in _block(*operands[:3]))
    radius = np.sqrt(-2 * np.log(np.where(slot < 2, a, c) * 2.0**-32 + 2.0**-33))
    turn = (np.where(slot < 2, b, d) * 2.0**-32 + 2.0**-33) * 2 * np.pi
    return _tensor(radius * np.where(slot % 2 == 0, np.sin(turn), np.cos(turn)), operands)


def random_normal_wide(*operands: torch.Tensor) -> torch.Tensor:
    """The same of 53 bits, two of a block."""
    slot = np.atleast_1d(operands[3].numpy())
    a, b, c, d = _block(*operands[:3])
    radius = np.sqrt(-2 * np.log(_wide(a, b) * 2.0**-53 + 2.0**-54))
    turn = (_wide(c, d) * 2.0**-52 + 2.0**-53) * np.pi
    return _tensor(radius * np.where(slot == 0, np.sin(turn), np.cos(turn)), operands)
