"""Runs a captured graph on real tensors, node by node; values are freed after their last use."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ..model.control import is_control
from ..model.source_lines import place_of
from .control import run_control
from .ties import settled
from .unchecked import check_operands

aten = torch.ops.aten
Node = torch.fx.Node
Call = Callable[[Node, tuple[Any, ...], dict[str, Any]], Any]


def run_graph(
    graph: torch.fx.Graph,
    inputs: Sequence[torch.Tensor],
    constant: Callable[[str], Any],
    call: Call,
) -> list[torch.Tensor]:
    """The outputs of a graph.

    Args:
        graph: placeholders are the inputs in order, the output is a flat tuple.
        inputs: one tensor per placeholder.
        constant: the value of a get_attr node, asked for at each node that reads it and dropped behind it.
        call: computes a call_function node from the values of its arguments.
    """
    last = _last_uses(graph)
    values: dict[Node, Any] = {}
    given = iter(inputs)

    def value(node: Node) -> Any:
        return constant(str(node.target)) if node.op == "get_attr" else values[node]

    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "call_function":
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
                try:
                    values[node] = call(node, args, kwargs)
                except (RuntimeError, IndexError) as error:
                    error.add_note(place_of(node))
                    raise
            elif node.op == "output":
                return list(torch.fx.node.map_arg(node.args[0], value))
            for dead in last.get(node, ()):
                values.pop(dead, None)
    raise ValueError("a graph without an output")


def _last_uses(graph: torch.fx.Graph) -> Mapping[Node, list[Node]]:
    """Node -> the values that are not read after it."""
    seen: set[Node] = set()
    last: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        for source in (*node.all_input_nodes, node):
            if source not in seen:
                seen.add(source)
                last.setdefault(node, []).append(source)
    return last


def call_torch(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator itself, equal elements in the order of their places (ties.py)."""
    if is_control(node.target):
        return run_control(str(node.target), args)
    check_operands(node.target, args)
    result = settled(node.target, args, kwargs)
    return value_form(node.target)(*args, **kwargs) if result is None else result


def value_form(target: Any) -> Any:
    """The operator that gives the same values whatever the strides of its arguments: view as reshape. A convolution of
    another type or size may give its result in another memory format than it had in the trace."""
    return aten.reshape.default if target is aten.view.default else target


def is_getitem(node: Node) -> bool:
    return node.target is operator.getitem
