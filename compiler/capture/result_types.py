"""Types of results that torch before 2.13 exports wrongly: numbers of elements in the type of the values.

unique(x: f32) -> (f32, f32, f32)     ->     (f32, i64, i64)

The forms are what models call, so that what follows is traced with the right types; `right_types` mends the calls.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["bincount", "right_types", "unique", "unique_consecutive"]

aten = torch.ops.aten


def unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    return _counted(torch.unique(x, sorted, return_inverse, return_counts, dim))


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """With a dimension counted from the front: torch.export gives the result a wrong shape for others."""
    axis = None if dim is None else dim % max(x.dim(), 1)
    return _counted(torch.unique_consecutive(x, return_inverse=return_inverse, return_counts=return_counts, dim=axis))


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    return _as(torch.bincount(x, weights, minlength), _of_sums(weights))


def _counted(found: Any) -> Any:
    if isinstance(found, Tensor):
        return found
    return (found[0], *(_as(numbers, torch.int64) for numbers in found[1:]))


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)


def _of_sums(weights: Tensor | None) -> torch.dtype:
    if weights is None:
        return torch.int64
    return torch.float32 if weights.dtype == torch.float32 else torch.float64


def _of_unique(results: Sequence[Tensor], _: fx.Node) -> tuple[Tensor, ...]:
    return results[0], *(_as(numbers, torch.int64) for numbers in results[1:])


def _of_bincount(result: Tensor, node: fx.Node) -> Tensor:
    weights = node.args[1] if len(node.args) > 1 else node.kwargs.get("weights")
    return _as(result, _of_sums(weights.meta["val"] if isinstance(weights, fx.Node) else None))


_RIGHT: dict[Any, Callable[[Any, fx.Node], Any]] = {
    aten._unique2.default: _of_unique,
    aten.unique_dim.default: _of_unique,
    aten.unique_consecutive.default: _of_unique,
    aten.bincount.default: _of_bincount,
}


def right_types(root: fx.GraphModule) -> None:
    """Gives the values of these calls, in bodies too, the types that the operators have."""
    for module in root.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            right = _RIGHT.get(node.target)
            if right is None:
                continue
            node.meta["val"] = right(node.meta["val"], node)
            for user in node.users:
                if user.target is operator.getitem:
                    user.meta["val"] = node.meta["val"][user.args[1]]
