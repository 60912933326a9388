"""A graph as parts that mycc compiles and operators that eager torch runs between them.

    a = mm(x, w)                       part 0: a = mm(x, w)
    b = bernoulli(a)          ->       eager:  b = bernoulli(a)
    c = relu(mul(a, b))                part 1: c = relu(mul(a, b))

A node's level says behind how many eager operators it stands: a compiled node is in the part of its level, an eager one
runs in front of the part of its own. Random operators and writes to arguments keep their order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..model.computed import free_symbols
from .runner import restrided

__all__ = [
    "Compile",
    "Part",
    "is_write",
    "levels",
    "numbers_for",
    "operators_of",
    "outer_graph",
    "parts_of",
    "split_in_two",
]


@dataclass(frozen=True)
class Part:
    """Nodes that are compiled together, as a graph module of their own; its arguments and results are nodes of the
    whole."""

    module: fx.GraphModule
    arguments: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]


def operators_of(module: fx.GraphModule) -> list[fx.Node]:
    """The nodes that compute: calls, without those that take a part of another's result."""
    return [n for n in module.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def levels(module: fx.GraphModule, eager: Collection[fx.Node], random: Collection[fx.Node] = ()) -> dict[fx.Node, int]:
    """The level of every call. random: those of the eager operators that keep their order."""
    found: dict[fx.Node, int] = {}
    last_random = 0
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        inputs = [n for n in node.all_input_nodes if n in found]
        if node.target is operator.getitem:
            found[node] = found[inputs[0]]
        elif node in eager:
            found[node] = max((found[n] + (not _in(eager, n)) for n in inputs), default=0)
        else:
            found[node] = max((found[n] for n in inputs), default=0)
        if node in random:
            last_random = found[node] = max(found[node], last_random)
    last = max(found.values(), default=0)
    for node in found:
        if is_write(node):
            found[node] = last
    return found


def _in(eager: Collection[fx.Node], node: fx.Node) -> bool:
    """Whether eager torch computes a node: an operator, or a part of what one gives."""
    while node.target is operator.getitem:
        node = node.args[0]  # type: ignore[assignment]
    return node in eager


def is_write(node: fx.Node) -> bool:
    """Whether an operator writes to an argument of the graph."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def split_in_two(module: fx.GraphModule) -> dict[fx.Node, int]:
    """Levels that make two parts of a graph, its first half and the rest."""
    nodes = operators_of(module)
    first = set(nodes[: len(nodes) // 2])
    found: dict[fx.Node, int] = {}
    for node in module.graph.nodes:
        if node.op == "call_function":
            found[node] = found[node.args[0]] if node.target is operator.getitem else int(node not in first)
    return found


def parts_of(module: fx.GraphModule, eager: Collection[fx.Node], level: dict[fx.Node, int]) -> dict[int, Part]:
    """The parts by their level; a level without compiled nodes has none."""
    members: dict[int, list[fx.Node]] = {}
    for node, own in level.items():
        if not _in(eager, node):
            members.setdefault(own, []).append(node)
    return {own: _part(module, nodes) for own, nodes in sorted(members.items())}


def _part(module: fx.GraphModule, nodes: Sequence[fx.Node]) -> Part:
    graph, inside = fx.Graph(), set(nodes)
    read = (n for node in nodes for n in node.all_input_nodes)
    arguments = dict.fromkeys(n for n in read if n not in inside and n.op != "get_attr")
    arguments |= dict.fromkeys(numbers_for(module, [*arguments, *nodes]))
    env: dict[fx.Node, fx.Node] = {}
    for node in arguments:
        env[node] = graph.placeholder(node.name)
        env[node].meta = dict(node.meta)
    for node in nodes:
        for source in node.all_input_nodes:
            if source.op == "get_attr" and source not in env:
                env[source] = graph.node_copy(source)
        env[node] = graph.node_copy(node, env.__getitem__)
    results = [n for n in nodes if not _only_parts(n) and (any(u not in inside for u in n.users))]
    graph.output(tuple(env[n] for n in results))
    return Part(fx.GraphModule(module, graph), tuple(arguments), tuple(results))


def numbers_for(module: fx.GraphModule, nodes: Iterable[fx.Node]) -> list[fx.Node]:
    """The arguments of the whole that give the size symbols of some nodes."""
    wanted: set[Any] = set().union(*(free_symbols(node.meta.get("val")) for node in nodes))
    if not wanted:
        return []
    numbers = (n for n in module.graph.find_nodes(op="placeholder") if isinstance(n.meta.get("val"), torch.SymInt))
    return [n for n in numbers if n.meta["val"].node.expr in wanted]


def _only_parts(node: fx.Node) -> bool:
    """Whether a node gives several values, which others take one by one."""
    return isinstance(node.meta.get("val"), (tuple, list))


Compile = Callable[[fx.GraphModule], Callable[[list[Any]], Sequence[Any]]]


def outer_graph(
    module: fx.GraphModule, eager: Collection[fx.Node], level: dict[fx.Node, int], compile_part: Compile
) -> fx.GraphModule:
    """The whole graph as calls of its compiled parts and of eager operators.

    compile_part: a part's module as a function of its arguments in a list.
    """
    parts = parts_of(module, eager, level)
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            env[node] = graph.node_copy(node)
    by_level: dict[int, list[fx.Node]] = {}
    for node, own in level.items():
        if _in(eager, node):
            by_level.setdefault(own, []).append(node)
    for own in sorted({*parts, *by_level}):
        for node in by_level.get(own, ()):
            env[node] = _with_traced_strides(graph, graph.node_copy(node, env.__getitem__), node)
        part = parts.get(own)
        if part is not None and (part.results or any(is_write(n) for n in part.module.graph.nodes)):
            whole = graph.call_function(compile_part(part.module), ([env[n] for n in part.arguments],))
            for i, node in enumerate(part.results):
                env[node] = graph.call_function(operator.getitem, (whole, i))
    output = module.graph.output_node()
    graph.output(fx.map_arg(output.args[0], env.__getitem__))
    return fx.GraphModule(module, graph)


def _with_traced_strides(graph: fx.Graph, new: fx.Node, node: fx.Node) -> fx.Node:
    """An eager operator's result, with the strides that the trace has for it: compiled parts rely on them."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or not all(isinstance(n, int) for n in (*val.shape, *val.stride())):
        return new
    return graph.call_function(_strided, (new, val.stride()))


def _strided(value: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    alike = value.stride() == stride or value.numel() < 2
    return value if alike else restrided(value, stride)
