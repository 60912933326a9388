"""Pass: zero padding as part of the convolution behind it."""

from __future__ import annotations

from typing import Any

from ..node import Node
from ..patterns import arg, is_op, only_user, rank, zero_padding
from ..work import Work, aten


def fold_padding(work: Work) -> dict[str, int]:
    """p = pad(x, [1, 1, 1, 1], constant, 0)
       y = conv2d(p, w, b, stride, [0, 0])       ->     y = conv2d(x, w, b, stride, [1, 1])

    Only padding that is equal on both sides of each spatial dimension, and none of the batch or the channels: aten's
    convolutions have no other. Needs NORMAL; establishes nothing that others need.
    """
    count = 0
    for node in work.nodes():
        if is_op(node, "conv1d", "conv2d", "convolution") and is_op(node.args[0], "pad", "constant_pad_nd"):
            count += _fold(work, node, node.args[0])
    return {"paddings folded": count} if count else {}


def _fold(work: Work, conv: Node, pad: Node) -> bool:
    sides = zero_padding(pad)
    spatial = rank(conv) - 2
    if sides is None or len(sides) > 2 * spatial or not only_user(pad, conv):
        return False
    if conv.target is aten.convolution.default and (conv.args[6] or any(conv.args[7])):
        return False
    padding = arg(conv, 4, "padding", [0])
    if isinstance(padding, str):
        return False
    total = list(padding) * (spatial if len(padding) == 1 else 1)
    for d in range(len(sides) // 2):
        before, behind = sides[2 * d : 2 * d + 2]
        if before != behind or before < 0:
            return False
        total[spatial - 1 - d] += before
    args: list[Any] = list(conv.args)
    defaults: list[Any] = [None, None, None, [1] * spatial, [0] * spatial]
    args += defaults[len(args) :]
    args[0], args[4] = pad.args[0], total
    new = work.call(conv.target, args, conv.kwargs, like=conv, val=conv.meta["val"], covers=[pad, conv])
    work.replace(conv, new)
    return True
