"""Chains of operators that take each element alone: a tensor first, and numbers beside it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .node import Node
from .work import Work

__all__ = ["chain_of", "value_behind"]


def chain_of(work: Work, steps: Sequence[Node], source: Node, instead_of: Node) -> Node:
    """The steps once more, from `source` on; instead_of: the node whose place it takes, which they cover."""
    found = source
    for step in steps:
        args = (found, *step.args[1:])
        found = work.call(step.target, args, step.kwargs, like=step, covers=[instead_of, step])
    return found


def value_behind(steps: Sequence[Node], value: float, dtype: torch.dtype) -> float:
    """What the steps make of a number of this dtype, in their own precision."""
    found = torch.tensor(value, dtype=dtype)
    for step in steps:
        found = step.target(found, *step.args[1:], **step.kwargs)
    return float(found)
