"""Operators that take as many elements of a complex tensor as the run finds: found once, as places in both parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..node import Node
from ..work import aten


@dataclass(frozen=True)
class Selection:
    """Rows `along` a dimension of spread(part), at the places that `operator`, called with every() and `chosen`, takes
    of all places."""

    operator: Any
    chosen: Node
    every: Callable[[Tensor], Tensor]
    spread: Callable[[Tensor], Tensor]
    along: int = 0


def selection_of(node: Node) -> Selection | None:
    """What a node selects; None for other operators and other arguments.

    masked_select(z, mask)       ->   p = masked_select(arange, mask);   re, im = re.flatten()[p], im.flatten()[p]
    z[:, mask]                   ->   the same, with the dimensions of the mask flat
    repeat_interleave(z, n, 1)   ->   p = repeat_interleave(arange, n);  re, im = re[:, p], im[:, p]
    """
    if node.target is aten.masked_select.default:
        return _masked_select(node.args[1])
    if node.target is aten.repeat_interleave.self_Tensor:
        return _repeated(*node.args[1:])
    if node.target is aten.index.Tensor:
        used = [(i, t) for i, t in enumerate(node.args[1]) if t is not None]
        if len(used) == 1 and used[0][1].meta["val"].dtype == torch.bool:
            return _masked(*used[0])
    return None


def _masked_select(mask: Any) -> Selection:
    def shape(part: Tensor) -> torch.Size:
        return torch.broadcast_shapes(part.shape, mask.meta["val"].shape)

    return Selection(
        aten.masked_select.default,
        mask,
        lambda part: torch.arange(shape(part).numel()).reshape(shape(part)),
        lambda part: part.expand(shape(part)).reshape([-1]),
    )


def _masked(first: int, mask: Any) -> Selection:
    shape = mask.meta["val"].shape

    def spread(part: Tensor) -> Tensor:
        return part.reshape([*part.shape[:first], shape.numel(), *part.shape[first + len(shape) :]])

    every = lambda _: torch.arange(shape.numel()).reshape(shape)  # noqa: E731
    return Selection(aten.masked_select.default, mask, every, spread, first)


def _repeated(repeats: Any, dim: int | None = None) -> Selection:
    def spread(part: Tensor) -> Tensor:
        return part.reshape([-1]) if dim is None else part

    along = 0 if dim is None else dim
    operator = aten.repeat_interleave.self_Tensor
    return Selection(operator, repeats, lambda part: torch.arange(spread(part).shape[along]), spread, along)
