"""Pass: scales and repeated heads around attention, as its own arguments."""

from __future__ import annotations

from typing import Any

from ...model.operators.trained_attention import attention_scale
from ..node import Node
from ..patterns import (
    dtype,
    is_op,
    number,
    only_user,
    rank,
    shape,
)
from ..sizes import expr, same_shape
from ..work import Work, aten

OWN = "mycc.attention.default"
_VIEWS = ("reshape", "permute", "unsqueeze", "expand", "slice", "select")


def attention_operands(work: Work) -> dict[str, int]:
    """sdpa(reshape(mul(q, c)), k, v, scale=s)                                   ->   sdpa(reshape(q), k, v, scale=s*c)
       h = reshape(expand(unsqueeze(k, 2), [b, g, r, n, d]), [b, g*r, n, d])
       sdpa(q, h, .. the same of v ..)                                           ->   sdpa(q, k, v, enable_gqa=True)

    and the same of mycc::attention. The product is taken out of views that only the attention reads.
    Needs NORMAL, SIMPLE, ATTENTION.
    """
    scales = groups = 0
    for node in work.nodes():
        if is_op(node, "scaled_dot_product_attention") or str(node.target) == OWN:
            scales += _absorb_scale(work, node, 0) + _absorb_scale(work, node, 1)
            groups += _group(work, node)
    counts = {"scales into attention": scales, "grouped queries": groups}
    return {k: v for k, v in counts.items() if v}


def _absorb_scale(work: Work, node: Node, position: int) -> bool:
    """Takes a multiplication by a number out of the views above an operand."""
    reader, source = node, node.args[position]
    while isinstance(source, Node) and only_user(source, reader) and is_op(source, *_VIEWS):
        reader, source = source, source.args[0]
    if not isinstance(source, Node) or not only_user(source, reader) or not is_op(source, "mul", "div"):
        return False
    factor = number(source.args[1])
    if factor is None or factor == 0.0 or len(source.args) != 2 or dtype(source.args[0]) != dtype(source):
        return False
    own = str(node.target) == OWN
    scale = node.args[5] if own else node.kwargs.get("scale")
    if scale is None:
        size = expr(shape(node.args[0])[-1])
        if not isinstance(size, int):
            return False
        scale = attention_scale(size)
    if is_op(source, "div"):
        factor = 1.0 / factor
    if own:
        node.args = (*node.args[:5], float(scale) * factor, *node.args[6:])
    else:
        node.kwargs = {**node.kwargs, "scale": float(scale) * factor}
    work.replace(source, source.args[0])
    return True


def _group(work: Work, node: Node) -> bool:
    """Keys and values before their heads are repeated."""
    wide = [_lifted(n) for n in node.args[1:3]]
    if wide[0] is None or wide[1] is None or not same_shape(shape(wide[0])[:-1], shape(wide[1])[:-1]):
        return False
    key, value = (_without_repeats(work, node, n) for n in wide if n is not None)
    node.args = (node.args[0], key, value, *node.args[3:])
    if str(node.target) != OWN:
        node.kwargs = {**node.kwargs, "enable_gqa": True}
    return True


def _lifted(node: Any) -> Node | None:
    """[b, g, 1, n, d], where node is that expanded to [b, g, r, n, d] and reshaped to [b, g*r, n, d]."""
    if not is_op(node, "reshape") or not is_op(node.args[0], "expand") or rank(node) != 4:
        return None
    wide: Node = node.args[0]
    lifted = wide.args[0]
    if rank(wide) != 5 or not isinstance(lifted, Node) or rank(lifted) != 5:
        return None
    b, g, r, n, d = shape(wide)
    if not same_shape(shape(lifted), (b, g, 1, n, d)) or not same_shape(shape(node), (b, g * r, n, d)):
        return None
    return lifted if isinstance(expr(g), int) and isinstance(expr(r), int) else None


def _without_repeats(work: Work, node: Node, lifted: Node) -> Node:
    """[b, g, n, d] of [b, g, 1, n, d]."""
    b, g, _, n, d = shape(lifted)
    if is_op(lifted, "unsqueeze", "reshape") and same_shape(shape(lifted.args[0]), (b, g, n, d)):
        return lifted.args[0]
    return work.call(aten.reshape.default, (lifted, work.sizes((b, g, n, d))), like=node)
