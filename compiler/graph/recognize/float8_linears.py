"""Pass: products of float8 weights as one operator that reads their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...model.operators import quantised  # noqa: F401  # defines the operator
from ..node import Node
from ..patterns import arg, is_constant, is_op, rank, shape
from ..sizes import same_shape
from ..work import Work, aten
from .quantised_readings import untransposed

mycc = torch.ops.mycc

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def float8_linears(work: Work) -> dict[str, int]:
    """_scaled_mm(a, t(w), sa, sb, bias, dtype)        ->   _to_copy(float8_mm(a, w) * sa * sb + bias, dtype)
       linear(x, _to_copy(w) * s, bias)                ->   float8_mm(x, w) * s + bias        s: of w, or of its rows

    w: float8_e4m3fn [n, k]. Needs NORMAL, in front of the decompositions, which widen the weights.
    """
    count = 0
    for node in work.nodes():
        made = _scaled(work, node) if is_op(node, "_scaled_mm") else _weight_only(work, node)
        if made is not None:
            work.replace(node, made)
            count += 1
    return {"float8 linears": count} if count else {}


def _is_float8(node: Any) -> bool:
    return isinstance(node, Node) and node.meta["val"].dtype == torch.float8_e4m3fn


# float8 times float8 -------------------------------------------------------------------------------------------------
def _scaled(work: Work, node: Node) -> Node | None:
    """The product that torch spells _scaled_mm, with scales of both tensors or of rows and columns."""
    a, b, scale_a, scale_b = (arg(node, i, name) for i, name in enumerate(("self", "mat2", "scale_a", "scale_b")))
    bias, scale_result = arg(node, 4, "bias"), arg(node, 5, "scale_result")
    if scale_result is not None or not _is_float8(a) or not _is_float8(b):
        return None
    if torch.float8_e8m0fnu in (scale_a.meta["val"].dtype, scale_b.meta["val"].dtype):
        return None
    whole = all(scale.meta["val"].numel() == 1 for scale in (scale_a, scale_b))
    rows = rank(scale_a) == 2 and shape(scale_a)[1] == 1 and rank(scale_b) == 2 and shape(scale_b)[0] == 1
    if not whole and not rows:
        return None
    weight, odd = untransposed(b)
    if not odd:
        weight = work.call(aten.permute.default, (b, [1, 0]), like=node)
    fast = (True,) if arg(node, 7, "use_fast_accum", False) else ()
    y = work.call(mycc.float8_mm.default, (a, weight, *fast), like=node, covers=[node])
    for scale in (scale_a, scale_b):
        factor = work.call(aten.reshape.default, (scale, []), like=node) if whole and rank(scale) else scale
        y = work.call(aten.mul.Tensor, (y, factor), like=node)
    if bias is not None:
        y = work.call(aten.add.Tensor, (y, bias), like=node)
    return _as(work, node, y)


# floats times float8 -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Weight:
    """What a node reads as floats: a constant of float8 [n, k], and a factor of its rows, or one of all of them."""

    values: Node
    scale: Node | None


def _weight_only(work: Work, node: Node) -> Node | None:
    """The product of floats with a weight that the model widens."""
    if is_op(node, "linear"):
        x, matrix, bias, transposed = node.args[0], node.args[1], arg(node, 2, "bias"), False
    elif is_op(node, "mm", "matmul"):
        (x, matrix), bias, transposed = node.args[:2], None, True
    elif is_op(node, "addmm") and [arg(node, 3, "beta", 1), arg(node, 4, "alpha", 1)] == [1, 1]:
        (bias, x, matrix), transposed = node.args[:3], True
    else:
        return None
    if not all(isinstance(n, Node) and n.meta["val"].dtype in _FLOATS for n in (x, matrix)) or rank(matrix) != 2:
        return None
    weight = _widened(matrix, transposed)
    if weight is None:
        return None
    y = work.call(mycc.float8_mm.default, (x, weight.values), like=node, covers=[node])
    if weight.scale is not None:
        single = all(size == 1 for size in shape(weight.scale))
        sizes = [] if single else [shape(weight.values)[0]]
        y = work.call(
            aten.mul.Tensor, (y, work.call(aten.reshape.default, (weight.scale, sizes), like=node)), like=node
        )
    if bias is not None:
        y = work.call(aten.add.Tensor, (y, bias), like=node)
    return _as(work, node, y)


def _widened(node: Any, transposed: bool) -> _Weight | None:
    """The float8 weight behind conversions, transpositions and a product with its scale."""
    odd, scale = transposed, None
    while True:
        node, transposed = untransposed(node)
        odd ^= transposed
        if not isinstance(node, Node):
            return None
        if _is_float8(node):
            return _Weight(node, scale) if is_constant(node) and not odd else None
        if is_op(node, "_to_copy"):
            node = node.args[0]
        elif is_op(node, "mul") and scale is None and all(isinstance(n, Node) for n in node.args[:2]):
            matrix, factor = node.args[:2]
            if rank(matrix) != 2 or not same_shape(shape(matrix), shape(node)):
                return None
            if not _of_rows(factor, shape(matrix), odd):
                return None
            scale, node = factor, matrix
        else:
            return None


def _of_rows(factor: Node, sizes: Any, odd: bool) -> bool:
    """Whether a factor of a weight [n, k] (transposed when `odd`) is one of its rows, or one number."""
    rows, own = sizes[1] if odd else sizes[0], list(shape(factor))
    return all(size == 1 for size in own) or own in ([[1, rows], [rows]] if odd else [[rows, 1]])


def _as(work: Work, node: Node, y: Node) -> Node:
    dtype = node.meta["val"].dtype
    return y if y.meta["val"].dtype == dtype else work.call(aten._to_copy.default, (y,), {"dtype": dtype}, like=node)
