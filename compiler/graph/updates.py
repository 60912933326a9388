"""Which operators may write into the memory of their operand, because it is the memory of their result in the end.

c = index_put(cache, [None, pos], k)          cache is state, c its new value: nothing else needs the old one,
return attention(q, c, c), c                  so only the positions `pos` are written
"""

from __future__ import annotations

import operator
from typing import Any, TypeAlias

import torch

from ..model.graph import ModelGraph
from ..model.operators.functional import behind_twin, tensors_of, written_arguments
from .node import Node
from .patterns import arg, op

__all__ = ["MARK", "bases_of", "mark_updates", "updates_of"]

#: the meta key of such an operator: it is not decomposed into operators that copy the whole
MARK = "mycc_in_place"

#: updates, each with the operand that it writes to
_Way: TypeAlias = list[tuple[Node, Node]]

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
    changes = [c for c in graph.in_place if c.output is not None]
    ways = [_between(results[c.output], placeholders[c.input]) for c in changes]
    return dict.fromkeys(node for way in _whole(ways) for node, _ in way)


def bases_of(node: Any) -> list[Any]:
    """The operands whose memory an update writes to."""
    operator = behind_twin(node.target)
    return [node.args[0]] if operator is None else tensors_of(written_arguments(operator, node.args, node.kwargs))


def _whole(ways: list[_Way]) -> list[_Way]:
    """Those whose operators write to nothing else that may lie in the memory of an input."""
    met = {(node, base) for way in ways for node, base in way}
    part = {node for node, _ in met for base in bases_of(node) if (node, base) not in met and not _is_new(base)}
    kept = [way for way in ways if not any(node in part for node, _ in way)]
    return kept if len(kept) == len(ways) else _whole(kept)


def _is_new(node: Node) -> bool:
    """Whether a value has memory of its own."""
    if node.op != "call_function" or op(node) in _SAME:
        return False
    schema = getattr(node.target, "_schema", None)
    return schema is None or all(result.alias_info is None for result in schema.returns)


def _between(last: Any, first: Node) -> _Way:
    """The updates from `first` to `last`, each with the operand that it writes to; none where something else is on the
    way."""
    found: _Way = []
    node = last
    while node is not first:
        if not isinstance(node, type(first)) or node.op != "call_function":
            return []
        name = op(node)
        written = _written_by(node)
        if written is not None:
            found.append((node.args[0], written))
            node = written
            continue
        if name in _PARTS and arg(node, 5, "step", 1) == 1:
            found += [(node, node.args[0]), *_inside(node)]
        elif name in _ELEMENTS and not _has_mask(node):
            found.append((node, node.args[0]))
        elif name not in _SAME:
            return []
        node = node.args[0]
    return found


def _written_by(node: Node) -> Node | None:
    """What `node`, the new value of an operand of an operator of the user's own, was before."""
    if node.target is not operator.getitem or behind_twin(node.args[0].target) is None:
        return None
    twin, place = node.args
    bases = bases_of(twin)
    first = len(twin.meta["val"]) - len(bases)
    return bases[place - first] if place >= first else None


def _has_mask(node: Node) -> bool:
    indices = node.args[1] if isinstance(node.args[1], (list, tuple)) else ()
    return any(isinstance(i, type(node)) and i.meta["val"].dtype == torch.bool for i in indices)


def _inside(node: Node) -> _Way:
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
