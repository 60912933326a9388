"""Results that are views: of arguments, which the package does not give, and of other results in the same memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from .interface import Constant, Number, Result, View, hint, permutation

__all__ = ["is_dense", "number_of", "root_of", "shared_roots", "view_of"]


def shared_roots(wanted: Sequence[Any], roots: Sequence[fx.Node | None]) -> set[fx.Node]:
    """What lies dense in memory and has views among the results that are to lie in the same memory: several of them, or
    one that is not dense itself (a slice, an expanded tensor), whose strides eager's would be."""
    count: dict[fx.Node, set[fx.Node]] = {}
    shared: set[fx.Node] = set()
    for node, root in zip(wanted, roots, strict=True):
        if root is None or not isinstance(root.meta.get("val"), torch.Tensor) or not is_dense(root):
            continue
        count.setdefault(root, set()).add(node)
        if len(count[root]) > 1 or _elements(node) == _elements(root) or not is_dense(node):
            shared.add(root)
    return shared


def _elements(node: fx.Node) -> int:
    return math.prod(hint(size) for size in node.meta["val"].shape)


def is_dense(node: fx.Node) -> bool:
    """Whether a node's elements fill its memory, in some order of its dimensions."""
    val = node.meta["val"]
    return permutation(val.shape, val.stride(), hint) is not None and hint(val.storage_offset()) == 0


def root_of(node: fx.Node) -> fx.Node:
    """What a node is a view of, through all operators that give views."""
    source = _viewed(node)
    while source is not None:
        node, source = source, _viewed(source)
    return node


def _viewed(node: fx.Node) -> fx.Node | None:
    """What an operator takes a view of, of the same type and the same numbers; None when it makes values.

    Of complex numbers that are read as their conjugates the elements lie there, but not the numbers.
    """
    taker = node.args[0] if node.target is operator.getitem else node  # one of the views that split gives
    if not isinstance(taker, fx.Node) or not isinstance(taker.target, OpOverload) or not taker.args:
        return None
    schema, source = taker.target._schema, taker.args[0]
    if schema.is_mutable or len(schema.returns) != 1 or not isinstance(source, fx.Node):
        return None
    if schema.arguments[0].alias_info is None or schema.returns[0].alias_info is None:
        return None
    val, base = node.meta.get("val"), source.meta.get("val")
    if not isinstance(val, torch.Tensor) or not isinstance(base, torch.Tensor):
        return None
    alike = (val.dtype, val.is_conj(), val.is_neg()) == (base.dtype, base.is_conj(), base.is_neg())
    return source if alike else None


def view_of(node: fx.Node, root: fx.Node, index: int) -> View:
    """A node as a view of argument `index`, or of another result."""
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
