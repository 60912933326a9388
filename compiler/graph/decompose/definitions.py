"""The registry of our own decompositions: operator name -> function of torch operators, for any sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}


class NoDecomposition(Exception):
    """A decomposition does not take these arguments: the operator stays whole, and the lowering reports it."""


def definition(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as the decomposition of operators, with or without overload."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            DECOMPOSITIONS[name] = function
        return function

    return add


def widened(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Half-precision tensors in float32, in which torch computes these operators; others as they are."""
    halves = (torch.float16, torch.bfloat16)
    return tuple(t.float() if t is not None and t.dtype in halves else t for t in tensors)
