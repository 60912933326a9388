"""The order of a step: each parameter is updated as soon as its gradient is there, which then takes no more memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from torch import fx

__all__ = ["updates_early"]


def updates_early(graph: fx.Graph, core: Iterable[fx.Node]) -> None:
    """Moves every node that none of `core` (results, gradients, buffers) is computed from up to the last of its
    operands.

        g1 = ...; g2 = ...; w1 = w - g1; v1 = v - g2       ->       g1 = ...; w1 = w - g1; g2 = ...; v1 = v - g2
    """
    needed = _ancestors(core)
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    late = [node for node in nodes if node not in needed]
    missing = {node: len(node.all_input_nodes) for node in late}
    for node in graph.find_nodes(op="placeholder"):
        _arrived(node, missing)
    ready = deque(node for node in late if not missing[node])
    waiting = deque(node for node in nodes if node in needed)
    last = graph.find_nodes(op="placeholder")[-1]
    while ready or waiting:
        node = ready.popleft() if ready else waiting.popleft()
        last.append(node)
        last = node
        ready.extend(_arrived(node, missing))


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def _arrived(node: fx.Node, missing: dict[fx.Node, int]) -> list[fx.Node]:
    """The nodes whose last operand this one is."""
    found = []
    for user in node.users:
        if user in missing:
            missing[user] -= 1
            if not missing[user]:
                found.append(user)
    return found
