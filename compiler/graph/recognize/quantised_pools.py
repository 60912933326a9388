"""Pass: maxima of windows are taken of integers where what reads them rounds them anyway."""

from __future__ import annotations

from typing import Any

import torch

from ..chains import chain_of
from ..node import Node
from ..patterns import arg, is_op
from ..work import Work
from .quantised_convs import rounds

_BYTES = (torch.int8, torch.uint8)


def quantised_pools(work: Work) -> dict[str, int]:
    """quantize(max_pool(x), t, y)   ->   max_pool(quantize(x, t, y))

    Rounding never puts a smaller number above a larger one, so it finds the same maximum. What makes x may then write
    bytes, and windows read them. Needs NORMAL, UNIQUE and LIVE.
    """
    count = 0
    for node in work.nodes():
        if not is_op(node, "max_pool1d", "max_pool2d", "max_pool3d") or not isinstance(node.args[0], Node):
            continue
        chain = _rounding(node)
        if chain:
            values = chain_of(work, chain, node.args[0], node)
            args = (values, *node.args[1:])
            pooled = work.call(node.target, args, node.kwargs, like=node, before=chain[-1], covers=[node])
            work.replace(chain[-1], pooled)
            count += 1
    return {"pools of integers": count} if count else {}


def _rounding(node: Node) -> list[Node]:
    """The operators that make bytes of a tensor of floats, each the only reader of the one before, and none turns its
    order around or wraps; empty where there are none."""
    steps: list[Node] = []
    while len(node.users) == 1 and node.meta["val"].dtype.is_floating_point:
        (node,) = node.users
        if not rounds(node) or not _keeps_order(node):
            break
        steps.append(node)
        if node.meta["val"].dtype in _BYTES:
            return steps if _saturates(steps) else []
    return []


def _saturates(steps: list[Node]) -> bool:
    """Whether the last step gives the nearest byte for numbers beyond its range: a cast does so behind a clamp."""
    if not is_op(steps[-1], "_to_copy"):
        return True
    clamp = next((step for step in reversed(steps[:-1]) if not is_op(step, "round")), None)
    bounds = () if clamp is None or not is_op(clamp, "clamp") else (arg(clamp, 1, "min"), arg(clamp, 2, "max"))
    limits = torch.iinfo(steps[-1].meta["val"].dtype)
    inside = (isinstance(b, int | float) and limits.min <= b <= limits.max for b in bounds)
    return len(bounds) == 2 and all(inside)


def _keeps_order(step: Node) -> bool:
    """Whether a step gives no larger result for a smaller number."""
    if is_op(step, "mul", "div"):
        by: Any = step.args[1]
        return "rounding_mode" not in step.kwargs and isinstance(by, int | float) and by > 0
    return not is_op(step, "sub") or isinstance(step.args[0], Node)
