"""Pass: bounds of activations as bounds of the integers that they are rounded to."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..chains import chain_of, value_behind
from ..node import Node
from ..patterns import arg, dtype, is_op, number, only_user
from ..work import Work, aten

_WIDE = (torch.float32, torch.float64)


def merge_rounded_clamps(work: Work) -> dict[str, int]:
    """h = hardtanh(x, 0, 6)                                  r = round(mul(x, 40)) - 128
       q = clamp(round(mul(h, 40)) - 128, -128, 127)   ->     q = clamp(r, -128, 112)

    Scaling by a positive number, rounding and adding a number keep the order of values, so that the bounds of h become
    those of q: the values are the same to the bit, NaN included. Only where nothing else reads h. Needs NORMAL SIMPLE.
    """
    count = sum(_merge(work, node) for node in work.nodes() if is_op(node, "clamp") and dtype(node) in _WIDE)
    return {"bounds merged": count} if count else {}


def _merge(work: Work, clamp: Node) -> bool:
    low, high = number(arg(clamp, 1, "min")), number(arg(clamp, 2, "max"))
    steps = _rounding(clamp)
    own = _bounds(steps[0].args[0]) if steps else None
    if low is None or high is None or own is None or not only_user(steps[0].args[0], steps[0]):
        return False
    inner = steps[0].args[0]
    found = chain_of(work, steps, inner.args[0], inner)
    ends = [value_behind(steps, end, dtype(clamp)) for end in own]
    bounds = max(low, ends[0]), min(high, ends[1])
    new = work.call(aten.clamp.default, (found, *bounds), like=clamp, val=clamp.meta["val"], covers=[inner, clamp])
    work.replace(clamp, new)
    return True


def _rounding(clamp: Node) -> list[Node]:
    """What is between an activation and the clamp of its integers, in order: a positive factor, round, and a sum."""
    steps: list[Node] = []
    node: Any = clamp.args[0]
    if is_op(node, "add", "sub") and number(node.args[1]) is not None and number(arg(node, 2, "alpha", 1)) == 1:
        steps.append(node)
        node = node.args[0]
    if not is_op(node, "round") or len(node.args) > 1 or node.kwargs:
        return []
    steps.insert(0, node)
    node = node.args[0]
    factor = number(node.args[1]) if is_op(node, "mul", "div") else None
    if factor is None or not 0 < factor < math.inf or node.kwargs:
        return []
    steps.insert(0, node)
    alone = all(only_user(before, behind) for before, behind in zip(steps, [*steps[1:], clamp], strict=True))
    return steps if alone else []


def _bounds(node: Any) -> tuple[float, float] | None:
    """The least and the greatest value that an activation leaves; None: it is another function."""
    if is_op(node, "relu", "relu6"):
        return 0.0, 6.0 if is_op(node, "relu6") else math.inf
    if not is_op(node, "hardtanh", "clamp", "clamp_min"):
        return None
    low = arg(node, 1, "min_val" if is_op(node, "hardtanh") else "min", -1.0 if is_op(node, "hardtanh") else None)
    high = arg(node, 2, "max_val" if is_op(node, "hardtanh") else "max", 1.0 if is_op(node, "hardtanh") else None)
    ends = (-math.inf if low is None else number(low), math.inf if high is None else number(high))
    if ends[0] is None or ends[1] is None or not ends[0] <= ends[1]:
        return None
    return float(ends[0]), float(ends[1])
