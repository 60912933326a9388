"""Writes to the elements that a mask names, which take as many values as there are: torch counts while it runs.

x[mask] = values                    ->   assert mask.sum() == len(values); the write
x.masked_scatter(mask, values)      ->   assert mask.sum() <= values.numel(); the write
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["ask_count", "is_one", "masked_scatter", "masked_scatter_"]


def is_one(n: Any) -> bool:
    """Whether a size is 1; dynamic ones, and those that the run finds, are taken for others, as torch.export does."""
    return isinstance(n, int) and n == 1


def ask_count(x: Tensor, items: Sequence[Any], value: Any) -> None:
    """Asserts of x[items] = value, with one mask among the items and no other tensor, that the value has as many rows
    as the mask has elements that are set, or one."""
    masks = [i for i, item in enumerate(items) if isinstance(item, Tensor)]
    if len(masks) != 1 or not isinstance(value, Tensor):
        return
    mask = items[masks[0]]
    if mask.dtype != torch.bool or mask.dim() == 0:
        return
    behind = items[masks[0] + 1 :]
    shown = sum(item is None or isinstance(item, slice) for item in behind)
    if not any(item is Ellipsis for item in items[: masks[0]]):
        taken = sum(isinstance(item, (int, torch.SymInt, slice)) for item in items)
        shown += x.dim() - taken - mask.dim()
    if value.dim() <= shown:
        return
    rows: Any = value.shape[value.dim() - 1 - shown]
    if not is_one(rows):
        torch._assert_async(mask.sum() == rows, f"a mask that is written to has not the number of values: {rows}")


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    _ask_enough(x, mask, source)
    return x.masked_scatter(mask, source)


def masked_scatter_(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    _ask_enough(x, mask, source)
    return x.masked_scatter_(mask, source)


def _ask_enough(x: Tensor, mask: Tensor, source: Tensor) -> None:
    chosen = mask.expand(torch.broadcast_shapes(x.shape, mask.shape)).sum()
    torch._assert_async(chosen <= source.numel(), "masked_scatter: the source has fewer values than the mask chooses")
