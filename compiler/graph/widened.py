"""Weights that a package holds in few bits, and makes floats of in every call."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..model.graph import ModelGraph, dtype_name
from ..model.source_lines import module_of, place_of
from .node import Node
from .patterns import is_constant, is_op

__all__ = ["widened_weights"]

#: operators that read a matrix of weights, and where it stands among their arguments
_READERS = {
    "linear": (1,), "mm": (0, 1), "matmul": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), (1,)),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), (1,)),
}  # fmt: skip
#: of fewer elements it takes no time
_SMALL = 1 << 12
_NARROW = (torch.int8, torch.uint8, torch.int32)


def widened_weights(graph: ModelGraph) -> list[str]:
    """A sentence for each layer that computes its weight from integers alone, of the graph behind the passes."""
    found = dict.fromkeys(_sentences(graph))
    for region in graph.regions.values():
        found.update(dict.fromkeys(widened_weights(region)))
    return list(found)


def _sentences(graph: ModelGraph) -> Iterator[str]:
    constant: set[Node] = set()
    for node in graph.module.graph.nodes:
        if is_constant(node) or (node.op == "call_function" and all(n in constant for n in node.all_input_nodes)):
            constant.add(node)
        for place in _READERS.get(node.target._opname, ()) if is_op(node, *_READERS) else ():
            weight = node.args[place] if place < len(node.args) else None
            stored = _integers(weight) if isinstance(weight, Node) and weight in constant else None
            if stored is not None and weight is not None and weight.meta["val"].numel() > _SMALL:
                own = graph.constants.get(str(stored.target))
                kind = dtype_name(own.dtype) if own is not None else "integers"
                name, where = module_of(node) or str(stored.target), place_of(node)
                yield f"the weight of '{name}' is kept as {kind} and widened to floats in every call ({where})"


def _integers(weight: Node) -> Node | None:
    """The constant of integers that a weight is computed from; None for one of floats."""
    pending, seen = [weight], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_constant(node) and node.meta["val"].dtype in _NARROW and node.meta["val"].numel() > _SMALL:
            return node
        pending += node.all_input_nodes
    return None
