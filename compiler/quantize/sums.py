"""Sums of maps (residual connections): which of their operands are read as the integers that stand in memory anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..graph.node import Node
from ..graph.patterns import arg, is_op, zero_padding
from ..model.graph import ModelGraph
from .layers import Layer

#: what stands between a convolution and the map that it stores: all become part of it
_OF_A_CONVOLUTION = (
    "batch_norm", "_native_batch_norm_legit_no_training", "relu", "relu6", "hardtanh", "clamp", "clamp_min", "silu",
    "hardswish", "hardsigmoid", "sigmoid", "gelu", "leaky_relu", "elu", "tanh", "dropout", "alias", "contiguous",
)  # fmt: skip
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


@dataclass(frozen=True)
class SumOperand:
    """An operand of a sum that is read as integers.

    Attributes:
        sum, place: the addition, and which of its operands.
        like: the constant of the convolution that reads the same map, whose range is its range too; "": its own.
    """

    sum: Node
    place: int
    like: str = ""


def sum_operands(graph: ModelGraph, layers: Sequence[Layer]) -> list[SumOperand]:
    """The operands of sums of maps that become integers, for convolutions whose activations do.

    A map that only convolutions and such sums read is stored as the integers of the convolutions, so the sums read
    these. Of two maps that convolutions make for a sum alone, the first one has to be stored until the second one is
    there, and becomes integers too; the second one is added where it is made.
    """
    readers = {(node, place - 1): x.target for x in layers if x.kind == "convolution" for node, place in x.readers}
    made = {node for node, _ in readers}
    sums = [node for node in graph.module.graph.nodes if _is_sum(node)]
    shared = {node: like for total in sums for node in total.args[:2] if (like := _shared(node, readers, sums))}
    found = []
    for total in sums:
        own = [SumOperand(total, i, shared[x]) for i, x in enumerate(total.args[:2]) if x in shared]
        if not own and all(_maker(x) in made and len(x.users) == 1 for x in total.args[:2]):
            own = [SumOperand(total, min((0, 1), key=lambda i: total.args[i]._sort_key))]
        found += own
    return found


def _is_sum(node: Node) -> bool:
    if not is_op(node, "add") or arg(node, 2, "alpha", 1) != 1 or len(node.args) < 2:
        return False
    a, b = node.args[:2]
    if not isinstance(a, Node) or not isinstance(b, Node) or a is b:
        return False
    first, second = a.meta["val"], b.meta["val"]
    same = first.dtype == second.dtype and tuple(first.shape) == tuple(second.shape)
    return same and first.dtype.is_floating_point and first.dim() >= 3


def _shared(node: Node, readers: Mapping[tuple[Node, int], str], sums: Sequence[Node]) -> str:
    """The constant of a convolution that reads a map, where only convolutions and sums read it; else ""."""
    places = _places(node)
    if any(place not in readers and place[0] not in sums for place in places):
        return ""
    return next((readers[place] for place in places if place in readers), "")


def _places(node: Node) -> list[tuple[Node, int]]:
    """What reads a map, and where; through zeros around it, which are integers like others."""
    found = []
    for user in node.users:
        if is_op(user, "pad", "constant_pad_nd") and user.args[0] is node and zero_padding(user) is not None:
            found += _places(user)
        else:
            found += [(user, i) for i, x in enumerate(user.args) if x is node]
    return found


def _maker(node: Any) -> Any:
    """The convolution behind what becomes a part of it; None: something else makes a map."""
    while is_op(node, *_OF_A_CONVOLUTION) and len(node.args[0].users) == 1:
        node = node.args[0]
    return node if is_op(node, *_CONVOLUTIONS) else None
