"""Pass: products with a constant matrix as aten.linear, on tensors as they are."""

from __future__ import annotations

from typing import Any

from ...model.origins import applied
from ..node import Node
from ..patterns import (
    arg,
    dtype,
    is_constant,
    is_op,
    only_user,
    rank,
    shape,
)
from ..sizes import same_shape
from ..work import Work, aten


def linear_products(work: Work) -> dict[str, int]:
    """addmm(b, x, w), mm(x, w), matmul(x, w), w constant [k, n]     ->     linear(x, w.t(), b)
       addmm(b, x, permute(w, [1, 0]))                               ->     linear(x, w, b)
       reshape(linear(reshape(x, [-1, k]), w, b), [.., n])           ->     linear(reshape(x, [.., k]), w, b)

    w.t() is a new constant in the memory of the old one, which must have no other reader. Needs NORMAL and SIMPLE;
    establishes LINEAR: matrices of the model are the second argument of aten.linear, stored [n, k].
    """
    count = sum(_product(work, node) for node in work.nodes())
    count += sum(_without_reshapes(work, node) for node in work.nodes())
    return {"products as linear": count} if count else {}


def _product(work: Work, node: Node) -> bool:
    bias: Any = None
    if is_op(node, "addmm"):
        bias, x, matrix = node.args[:3]
        plain = [arg(node, 3, "beta", 1), arg(node, 4, "alpha", 1)] == [1, 1]
        if not plain or not isinstance(bias, Node) or rank(bias) != 1 or not _has_length(bias, node):
            return False
    elif is_op(node, "mm", "matmul"):
        x, matrix = node.args[:2]
    else:
        return False
    if not isinstance(x, Node) or not isinstance(matrix, Node) or rank(x) < 2 or rank(matrix) != 2 or is_constant(x):
        return False
    weight = _transposed(work, matrix)
    if weight is None or dtype(x) != dtype(weight):
        return False
    args = (x, weight) if bias is None else (x, weight, bias)
    work.replace(node, work.call(aten.linear.default, args, like=node, val=node.meta["val"], covers=[node]))
    return True


def _has_length(bias: Node, node: Node) -> bool:
    return same_shape(shape(bias), shape(node)[-1:])


def _transposed(work: Work, matrix: Node) -> Node | None:
    """The node of the matrix stored the other way round."""
    if is_op(matrix, "permute") and is_constant(matrix.args[0]):
        return matrix.args[0]
    if not is_constant(matrix) or len(matrix.users) != 1:
        return None
    name = str(matrix.target)
    return work.constant(f"{name}_t", applied("aten.t.default", work.known(matrix)), like=matrix)


def _without_reshapes(work: Work, node: Node) -> bool:
    """A linear works on all leading dimensions: flattening them before it and restoring them behind is not needed."""
    product = node.args[0] if node.args else None
    if not is_op(node, "reshape") or not is_op(product, "linear") or not only_user(product, node):
        return False
    flat = product.args[0]
    if not is_op(flat, "reshape") or not same_shape(shape(product)[-1:], shape(node)[-1:]):
        return False
    x: Node = flat.args[0]
    wanted = (*shape(node)[:-1], shape(flat)[-1])
    if not same_shape(shape(x), wanted):
        x = work.call(aten.reshape.default, (x, work.sizes(wanted)), like=product)
    new = work.call(aten.linear.default, (x, *product.args[1:]), like=product, val=node.meta["val"], covers=[product])
    work.replace(node, new)
    return True
