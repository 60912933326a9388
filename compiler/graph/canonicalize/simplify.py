"""Pass: views and arithmetic that do nothing, and chains of views that are one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from ..node import Node
from ..patterns import dtype, is_op, number, rank, shape
from ..sizes import expr, same_shape
from ..work import UnknownSize, Work, aten


def simplify(work: Work) -> dict[str, int]:
    """reshape(reshape(x, a), b)                    ->   reshape(x, b)
       permute(permute(x, p), q)                    ->   permute(x, p o q)
       permute that moves dimensions of size 1 only ->   reshape
       unsqueeze, squeeze                           ->   reshape, where another reshape follows or precedes
       reshape to the same shape, full slice, mul(x, 1), pad by nothing, cat of one tensor   ->   x

    Needs NORMAL; establishes SIMPLE: none of the left sides is left. Float additions of 0 stay: they change -0.0.
    """
    total = 0
    while True:
        changed = 0
        for node in work.nodes():
            if node.op == "call_function":
                changed += any(rule(work, node) for rule in _RULES)
        total += changed
        if not changed:
            return {"views and no-ops simplified": total} if total else {}


def _no_op(work: Work, node: Node) -> bool:
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or not _does_nothing(node, source):
        return False
    if dtype(source) != dtype(node) or not same_shape(shape(source), shape(node)):
        return False
    work.replace(node, source)
    return True


def _does_nothing(node: Node, source: Node) -> bool:
    """Given that shape and dtype do not change, whether the values cannot either."""
    if not isinstance(source.meta.get("val"), torch.Tensor) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    match node.target:
        case aten.reshape.default | aten.expand.default | aten.squeeze.dim | aten.squeeze.dims | aten.squeeze.default:
            return True
        case aten.permute.default:
            return list(node.args[1]) == sorted(node.args[1])
        case aten.slice.Tensor:
            return len(node.args) < 5 or node.args[4] == 1
        case aten.repeat.default:
            return all(n == 1 for n in node.args[1])
        case aten.constant_pad_nd.default | aten.pad.default:
            return all(n == 0 for n in node.args[1])
        case aten.mul.Tensor:
            return number(node.args[1]) == 1.0
        case aten.div.Tensor:
            return number(node.args[1]) == 1.0
        case aten.add.Tensor | aten.sub.Tensor:
            return number(node.args[1]) == 0.0 and not dtype(node).is_floating_point
        case aten.pow.Tensor_Scalar:
            return number(node.args[1]) == 1.0
    return False


def _commuted(work: Work, node: Node) -> bool:
    """mul(2, x) -> mul(x, 2)"""
    if node.target not in (aten.mul.Tensor, aten.add.Tensor) or len(node.args) != 2 or node.kwargs:
        return False
    if number(node.args[0]) is None or not isinstance(node.args[1], Node):
        return False
    node.args = (node.args[1], node.args[0])
    return True


_RESHAPE_LIKE = ("reshape", "unsqueeze", "squeeze")


def _merged_reshape(work: Work, node: Node) -> bool:
    """reshape(reshape(x)) -> reshape(x); unsqueeze and squeeze count as reshapes beside another one."""
    if not is_op(node, *_RESHAPE_LIKE) or not is_op(node.args[0], *_RESHAPE_LIKE):
        return False
    return _as_reshape(work, node, node.args[0].args[0])


def _as_reshape(work: Work, node: Node, source: Node) -> bool:
    if node.target is aten.reshape.default:
        sizes = node.args[1]
    else:
        try:
            sizes = work.sizes(shape(node))
        except UnknownSize:
            return False
    if -1 in sizes and node.args[0] is not source and rank(source) == 0:
        return False
    node.target, node.args, node.kwargs = aten.reshape.default, (source, sizes), {}
    return True


def _merged_permute(work: Work, node: Node) -> bool:
    source = node.args[0] if node.args else None
    if node.target is not aten.permute.default or not is_op(source, "permute"):
        return False
    inner = list(source.args[1])
    node.args = (source.args[0], [inner[d] for d in node.args[1]])
    return True


def _permute_of_ones(work: Work, node: Node) -> bool:
    """A permutation that keeps the order of the dimensions larger than 1 moves no element."""
    if node.target is not aten.permute.default:
        return False
    sizes = shape(node.args[0])
    moved = [d for d in node.args[1] if expr(sizes[d]) != 1]
    if moved != sorted(moved) or list(node.args[1]) == sorted(node.args[1]):
        return False
    return _as_reshape(work, node, node.args[0])


def _merged_expand(work: Work, node: Node) -> bool:
    source = node.args[0] if node.args else None
    if node.target is not aten.expand.default or not is_op(source, "expand"):
        return False
    node.args = (source.args[0], node.args[1])
    return True


def _single_cat(work: Work, node: Node) -> bool:
    if node.target not in (aten.cat.default,) or len(node.args[0]) != 1:
        return False
    work.replace(node, node.args[0][0])
    return True


def _double_cast(work: Work, node: Node) -> bool:
    """_to_copy(_to_copy(x, f64), f32), x f32 -> x: widening and back is exact."""
    source = node.args[0] if node.args else None
    if node.target is not aten._to_copy.default or not is_op(source, "_to_copy"):
        return False
    first: Any = source.args[0]
    if not torch.can_cast(dtype(first), dtype(source)) or not _widens(dtype(first), dtype(source)):
        return False
    if dtype(node) == dtype(first):
        work.replace(node, first)
    else:
        node.args = (first,)
    return True


_EXACT = {
    torch.float16: (torch.float32, torch.float64),
    torch.bfloat16: (torch.float32, torch.float64),
    torch.float32: (torch.float64,),
    torch.bool: (torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64),
    torch.int32: (torch.int64, torch.float64),
}


def _widens(narrow: torch.dtype, wide: torch.dtype) -> bool:
    return wide in _EXACT.get(narrow, ())


def _known_item(work: Work, node: Node) -> bool:
    """split(x, ...)[i] where nothing is split off -> x"""
    source = node.args[0] if node.args else None
    if node.target is not operator.getitem or not is_op(source, "split", "split_with_sizes", "chunk", "tensor_split"):
        return False
    if len(source.meta["val"]) != 1:
        return False
    work.replace(node, source.args[0])
    return True


_RULES: tuple[Callable[[Work, Node], bool], ...] = (
    _no_op, _commuted, _merged_reshape, _merged_permute, _permute_of_ones, _merged_expand, _single_cat, _double_cast,
    _known_item,
)  # fmt: skip
