"""Which operators may write into the memory of their operand, because it is the memory of their result in the end.

c = index_put(cache, [None, pos], k)          cache is state, c its new value: nothing else needs the old one,
return attention(q, c, c), c                  so only the positions `pos` are written
"""

from __future__ import annotations

from typing import Any

import torch

from ..capture.graph import ModelGraph
from .node import Node
from .patterns import arg, op

__all__ = ["MARK", "mark_updates", "updates_of"]

#: the meta key of such an operator: it is not decomposed into operators that copy the whole
MARK = "mycc_in_place"

_PARTS = {"slice_scatter": ("slice", "narrow"), "select_scatter": ("select",)}
_ELEMENTS = {"index_put", "_unsafe_index_put", "index_copy", "index_add", "index_fill", "scatter", "scatter_add"}
_SAME = {"clone", "contiguous", "alias", "detach"}


def mark_updates(graph: ModelGraph, nodes: list[Node]) -> None:
    """Marks them in `nodes`, a graph whose placeholders and outputs are those of `graph`."""
    for node in updates_of(graph, nodes):
        node.meta[MARK] = True


def updates_of(graph: ModelGraph, nodes: list[Node]) -> dict[Node, None]:
    """The operators on the way from an input that is changed in place to its new value, when there are no others."""
    if not graph.in_place:
        return {}
    placeholders = [n for n in nodes if n.op == "placeholder"]
    results: Any = next(n for n in nodes if n.op == "output").args[0]
    found: dict[Node, None] = {}
    for change in graph.in_place:
        if change.output is not None:
            found |= dict.fromkeys(_between(results[change.output], placeholders[change.input]))
    return found


def _between(last: Any, first: Node) -> list[Node]:
    """The updates from `first` to `last`; none where something else is on the way."""
    found: list[Node] = []
    node = last
    while node is not first:
        if not isinstance(node, type(first)) or node.op != "call_function":
            return []
        name = op(node)
        if name in _PARTS and arg(node, 5, "step", 1) == 1:
            found += [node, *_inside(node)]
        elif name in _ELEMENTS and not _has_mask(node):
            found.append(node)
        elif name not in _SAME:
            return []
        node = node.args[0]
    return found


def _has_mask(node: Node) -> bool:
    indices = node.args[1] if isinstance(node.args[1], (list, tuple)) else ()
    return any(isinstance(i, type(node)) and i.meta["val"].dtype == torch.bool for i in indices)


def _inside(node: Node) -> list[Node]:
    """Updates of the very part that `node` puts back: select_scatter(x, index_put(select(x, d, i), ...), d, i)."""
    part = node.args[1]
    if not isinstance(part, type(node)):
        return []
    view = part
    while op(view) in _ELEMENTS or op(view) in _PARTS:
        view = view.args[0]
    taken = op(view) in _PARTS[op(node)] and view.args[0] is node.args[0]
    if not taken or tuple(view.args[1:]) != tuple(node.args[2:]):
        return []
    return _between(part, view)
