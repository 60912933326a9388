"""How much one program does: powers of two, chosen by the sizes and the number of multiprocessors."""

from __future__ import annotations

from ...ir.index import Index, as_index
from ...machine.gpu import WARP, Device
from ...machine.gpu_programs import EACH, PROGRAM_WARPS
from ..cost.estimates import number


def power_of_two(value: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(value - 1, 0).bit_length()


def warps_for(elements: int, each: int = EACH, most: int = PROGRAM_WARPS) -> int:
    """Warps for a tile, of which every thread has about `each` elements."""
    return max(1, min(most, power_of_two(elements) // (WARP * each)))


def share(total: Index, device: Device, least: int, most: int) -> int:
    """How many of `total` things one program does, so that the device is full: a power of two in [least, most]."""
    wanted = number(total) // (device.sms * device.full)
    return max(least, min(most, power_of_two(wanted + 1) // 2 or 1))


def blocks(extent: Index, block: int) -> Index:
    """How many blocks cover an extent."""
    return extent if block == 1 else (extent + (block - 1)) // as_index(block)


def whole(extent: Index, block: int) -> bool:
    """Whether blocks cover an extent without a rest, at all sizes."""
    return all(c % block == 0 for c in extent.terms.values())
