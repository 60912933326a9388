"""Which nodes of a graph compute the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .random_operators import draws

__all__ = ["argument_key", "merge_equal_nodes", "writes"]


def argument_key(value: Any) -> Any:
    """A hashable form of a node's argument. Numbers keep their type and sign: 1 is not 1.0, 0.0 is not -0.0."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(argument_key(v) for v in value)
    if isinstance(value, dict):
        return tuple(sorted((k, argument_key(v)) for k, v in value.items()))
    return type(value).__name__, repr(value)


def writes(graph: fx.Graph) -> bool:
    """Whether a call of a graph may change one of its operands."""
    return any(
        node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in graph.nodes
    )


def merge_equal_nodes(graph: fx.Graph) -> None:
    """a = t(x); b = t(x); c = mm(a, b)      ->      a = t(x); c = mm(a, a)

    Of a graph without writes. Results of the graph stay tensors of their own, and random numbers stay as many; what an
    operator of unknown meaning gives is left alone.
    """
    results = {_memory(node) for node in graph.output_node().all_input_nodes}
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_pure(node) or _memory(node) in results:
            continue
        first = seen.setdefault((node.target, argument_key(node.args), argument_key(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _is_pure(node: fx.Node) -> bool:
    """Whether a node is an operator that computes the same of the same operands; `empty` gives memory as it is."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target.__module__ == "_operator"
    if target.namespace not in ("aten", "prims") or "empty" in target._opname or draws(node):
        return False
    return isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


def _memory(node: fx.Node) -> Any:
    """Of a node's value; None where it is no tensor with memory."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return node
    return value.untyped_storage()._cdata
