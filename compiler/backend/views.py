"""Results that are views: of arguments, which the package does not give, and of other results in the same memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from .interface import Constant, Number, Result, View, hint, permutation

__all__ = ["number_of", "root_of", "shared_roots", "view_of"]


def shared_roots(wanted: Sequence[Any], roots: Sequence[fx.Node | None]) -> set[fx.Node]:
    """What lies dense in memory and has views among the results that are to lie in the same memory: several of them, or
    one that is not dense itself (a slice, an expanded tensor), whose strides eager's would be."""
    count: dict[fx.Node, set[fx.Node]] = {}
    shared: set[fx.Node] = set()
    for node, root in zip(wanted, roots, strict=True):
        if root is None or not isinstance(root.meta.get("val"), torch.Tensor) or not _is_dense(root):
            continue
        count.setdefault(root, set()).add(node)
        if len(count[root]) > 1 or _elements(node) == _elements(root) or not _is_dense(node):
            shared.add(root)
    return shared


def _elements(node: fx.Node) -> int:
    return math.prod(hint(size) for size in node.meta["val"].shape)


def _is_dense(node: fx.Node) -> bool:
    val = node.meta["val"]
    return permutation(val.shape, val.stride(), hint) is not None and hint(val.storage_offset()) == 0


def root_of(node: fx.Node) -> fx.Node:
    """What a node is a view of, through all operators that give views."""
    while node.op == "call_function" and _is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _is_view(node: fx.Node) -> bool:
    target = node.target
    if (
        not isinstance(target, OpOverload)
        or target._schema.is_mutable
        or not isinstance(node.meta.get("val"), torch.Tensor)
    ):
        return False
    first, returns = target._schema.arguments[:1], target._schema.returns
    if not first or len(returns) != 1 or first[0].alias_info is None or returns[0].alias_info is None:
        return False
    same = isinstance(node.args[0], fx.Node) and isinstance(node.args[0].meta.get("val"), torch.Tensor)
    return same and node.args[0].meta["val"].dtype == node.meta["val"].dtype  # type: ignore[union-attr]


def view_of(node: fx.Node, root: fx.Node, index: int) -> View:
    """A node as a view of argument `index`, or of another result."""
    if node is root:
        return View(index, whole=True)
    val, base = node.meta["val"], root.meta["val"]
    offset = _formula(val.storage_offset()) - _formula(base.storage_offset())
    return View(index, tuple(map(_formula, val.shape)), tuple(map(_formula, val.stride())), offset)


def _formula(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def number_of(val: Any) -> Result:
    """A result that is no tensor."""
    if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Number(val.node.expr)
    return Constant(val)
