"""Which operators draw random numbers."""

from __future__ import annotations

import torch
from torch.fx import Node

from .control import regions_of
from .graph import ModelGraph

__all__ = ["draws", "draws_random_numbers"]


def draws(node: Node) -> bool:
    """Dropout that is off, alone or in an attention, draws nothing."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    values = {}
    for i, argument in enumerate(node.target._schema.arguments):
        given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        values[argument.name] = given
    off = values.get("train", True) is False or values.get("training", True) is False
    dropout = values.get("dropout_p", values.get("p") if "train" in values else None)
    return bool(not off and dropout != 0)


def draws_random_numbers(graph: ModelGraph) -> bool:
    """Whether a graph, or a body in it, has operators whose results differ from call to call."""
    return any(draws(node) for part in (graph, *regions_of(graph)) for node in part.module.graph.nodes)
