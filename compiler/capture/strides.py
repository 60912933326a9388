"""Where views lie in the memory of the whole tensor that they are taken of, as strides."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["memory_order", "overlaps", "partly_overlap", "same_bits", "strides_in"]


def memory_order(whole: object) -> list[int] | None:
    """The dimensions of a tensor from the outermost in memory to the innermost; None if it does not fill its memory,
    and for several tensors."""
    if not isinstance(whole, torch.Tensor) or whole.layout != torch.strided:
        return None
    if whole.storage_offset() != 0 or whole.untyped_storage().nbytes() != whole.numel() * whole.element_size():
        return None
    plain = list(range(whole.dim()))
    if whole.is_contiguous():
        return plain
    if not _fixed(whole):
        return None
    steps = list(whole.stride())
    order = sorted(plain, key=lambda d: (-steps[d], -whole.shape[d]))
    return order if whole.permute(order).is_contiguous() else None


def strides_in(whole: torch.Tensor, view: torch.Tensor) -> tuple[list[int], list[int], int] | None:
    """Size, strides and offset of a view in the memory of a tensor; None for dynamic sizes and for other bits (another
    type, conjugates)."""
    offset = view.storage_offset()
    if not _fixed(view) or not isinstance(offset, int) or not same_bits(whole, view):
        return None
    return list(view.shape), list(view.stride()), offset


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether equal bits in memory are equal numbers of both."""
    return (a.dtype, a.is_conj(), a.is_neg()) == (b.dtype, b.is_conj(), b.is_neg())


def overlaps(value: torch.Tensor) -> bool | None:
    """Whether elements lie over each other, as those of expand, unfold and as_strided may; None for dynamic sizes."""
    if not _fixed(value):
        return None
    steps = [(step, size) for size, step in zip(value.shape, value.stride(), strict=True) if size != 1]
    reached = 0
    for step, size in sorted(steps):
        if step <= reached:
            return value.numel() > 0 and _several_in_a_place(steps, value.numel())
        reached += step * (size - 1)
    return False


def partly_overlap(a: object, b: object) -> bool:
    """Whether two views of a tensor share some of their memory but are not the same elements. As eager does, which
    tells it by where they begin and end: dense views alone, of sizes that are known."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _fixed(a) and _fixed(b)):
        return False
    begins = (a.storage_offset() * a.element_size(), b.storage_offset() * b.element_size())
    if not (all(isinstance(n, int) for n in begins) and _dense(a) and _dense(b)):
        return False
    ends = tuple(n + t.numel() * t.element_size() for n, t in zip(begins, (a, b), strict=True))
    if not a.numel() or not b.numel() or begins[0] >= ends[1] or begins[1] >= ends[0]:
        return False
    return (begins[0], ends[0], a.stride()) != (begins[1], ends[1], b.stride())


def _dense(value: torch.Tensor) -> bool:
    """Whether the elements lie side by side, each in a place of its own."""
    reach = sum(step * (size - 1) for size, step in zip(value.shape, value.stride(), strict=True))
    return not overlaps(value) and reach + 1 == value.numel()


def _several_in_a_place(steps: Sequence[tuple[int, int]], count: int) -> bool:
    if any(step == 0 for step, _ in steps) or 1 + sum(step * (size - 1) for step, size in steps) < count:
        return True
    places = {0}
    for step, size in steps:
        places = {place + i * step for place in places for i in range(size)}
    return len(places) < count


def _fixed(value: torch.Tensor) -> bool:
    return value.layout == torch.strided and all(isinstance(n, int) for n in (*value.shape, *value.stride()))
