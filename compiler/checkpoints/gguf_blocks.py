"""The blocks that GGUF files store weights in, as integers of mycc's operators.

Each type has a row: its bytes, its values, and how they are read. A weight is q * d + m with a scale d and an offset m
of its group; here it is (q - zero) * d. Blocks are little-endian; d and m are float16.

    Q8_0   d, q int8 [32]
    Q4_0   d, q [16 bytes]: value i in the lower half of byte i, value i + 16 in the upper one; less 8
    Q4_1   d, m, q as Q4_0
    Q5_0   d, the fifth bits uint32, q as Q4_0; less 16
    Q5_1   d, m, the fifth bits, q as Q4_0
    Q4_K   d, dmin, 12 bytes with 6-bit scales and offsets of 8 groups of 32, q [128 bytes]
    Q5_K   the same with 32 bytes of fifth bits before q
    Q6_K   the lower four bits [128 bytes], the upper two [64 bytes], int8 scales of 16 groups, d; less 32
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .weights import PackedWeight

__all__ = ["BLOCKS", "read_blocks"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
#: q uint8 or int8 [blocks, values]; d, m [blocks, groups] (m None: no offset), so that a weight is q * d + m
Parts = tuple[NDArray[np.int8], Floats, Floats | None]


@dataclass(frozen=True)
class Block:
    """size: in bytes. values: that it holds. bits: 4 or 8, in which mycc keeps them. read: parts of [blocks, size]."""

    size: int
    values: int
    bits: int
    read: Callable[[Bytes], Parts]


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at a place of each block, [blocks, 1]."""
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float32)


def _halves(packed: Bytes) -> Bytes:
    """[..., n] bytes as [..., 2 n] values: the lower halves, then the upper ones."""
    return np.concatenate((packed & 15, packed >> 4), -1)


def _q8_0(b: Bytes) -> Parts:
    return b[:, 2:34].copy().view(np.int8), _half(b, 0), None


def _q4_0(b: Bytes) -> Parts:
    return _halves(b[:, 2:18]).view(np.int8) - np.int8(8), _half(b, 0), None


def _q4_1(b: Bytes) -> Parts:
    return _with_offset(_halves(b[:, 4:20]).view(np.int8), _half(b, 0), _half(b, 2), 8)


def _fifth(packed: Bytes, bits: Bytes) -> NDArray[np.int8]:
    return (_halves(packed) | np.unpackbits(bits, axis=1, bitorder="little") << 4).view(np.int8)


def _q5_0(b: Bytes) -> Parts:
    return _fifth(b[:, 6:22], b[:, 2:6]) - np.int8(16), _half(b, 0), None


def _q5_1(b: Bytes) -> Parts:
    return _fifth(b[:, 8:24], b[:, 4:8]), _half(b, 0), _half(b, 2)


def _six_bits(packed: Bytes) -> tuple[Floats, Floats]:
    """Scales and offsets of 8 groups from 12 bytes: four of each whole, the others in halves and in two upper bits."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate((first & 63, third & 15 | first >> 6 << 4), -1)
    offsets = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), -1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def _q4_k(b: Bytes) -> Parts:
    scales, offsets = _six_bits(b[:, 4:16])
    q = _halves(b[:, 16:144].reshape(-1, 4, 32)).reshape(-1, 256).view(np.int8)
    return _with_offset(q, _half(b, 0) * scales, -_half(b, 2) * offsets, 8)


def _q5_k(b: Bytes) -> Parts:
    scales, offsets = _six_bits(b[:, 4:16])
    q = _halves(b[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    high = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return (q | high << 4).reshape(-1, 256).view(np.int8), _half(b, 0) * scales, -_half(b, 2) * offsets


def _q6_k(b: Bytes) -> Parts:
    low = _halves(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q = (low | high << 4).reshape(-1, 256).view(np.int8) - np.int8(32)
    return q, _half(b, 208) * b[:, 192:208].copy().view(np.int8), None


def _with_offset(q: NDArray[np.int8], d: Floats, m: Floats, less: int) -> Parts:
    """q less half its range, with the offset that belongs to that."""
    return q - np.int8(less), d, m + d * np.float32(less)


BLOCKS = {
    "Q8_0": Block(34, 32, 8, _q8_0), "Q4_0": Block(18, 32, 4, _q4_0), "Q4_1": Block(20, 32, 4, _q4_1),
    "Q5_0": Block(22, 32, 8, _q5_0), "Q5_1": Block(24, 32, 8, _q5_1), "Q4_K": Block(144, 256, 4, _q4_k),
    "Q5_K": Block(176, 256, 8, _q5_k), "Q6_K": Block(210, 256, 8, _q6_k),
}  # fmt: skip


def read_blocks(kind: str, data: Bytes, columns: int) -> PackedWeight:
    """A weight of N rows from its bytes, [N, bytes of a row]. Groups whose scale is 0 get another one."""
    form, rows = BLOCKS[kind], data.shape[0]
    q, d, m = form.read(np.ascontiguousarray(data).reshape(-1, form.size))
    values, scales = q.reshape(rows, columns), d.reshape(rows, -1)
    group, zeros = columns // scales.shape[1], None if m is None else m.reshape(scales.shape)
    values, scales, zeros = _without_empty(values, scales, zeros, group)
    if zeros is not None:
        zeros = -zeros / scales
    halved = scales.astype(np.float16)
    if bool((halved.astype(np.float32) == scales).all()):
        scales = halved  # type: ignore[assignment]
    tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in (values, scales)]
    return PackedWeight(tensors[0], tensors[1], None if zeros is None else torch.from_numpy(zeros), form.bits, group)


def _without_empty(
    values: NDArray[np.int8], scales: Floats, offsets: Floats | None, group: int
) -> tuple[NDArray[np.int8], Floats, Floats | None]:
    """Groups of one value, whose scale is 0: a scale of that value (1 where it is 0), and integers of 0."""
    empty = scales == 0
    if not empty.any():
        return values, scales, offsets
    values = np.where(np.repeat(empty, group, 1), np.int8(0), values)
    constant = np.zeros_like(scales) if offsets is None else offsets
    return values, np.where(empty, np.where(constant == 0, np.float32(1), constant), scales), offsets
