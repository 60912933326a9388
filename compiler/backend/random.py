"""Which operators of a graph draw random numbers: torch draws them, from its own generators, in eager's order."""

from __future__ import annotations

from torch import fx

from ..model.random_operators import draws
from .parts import operators_of

__all__ = ["RANDOM", "random_operators"]

RANDOM = "its random numbers come from torch's own generators"


def random_operators(module: fx.GraphModule) -> list[fx.Node]:
    """The operators that draw random numbers, themselves or in a body."""
    return [node for node in operators_of(module) if _draws(module, node)]


def _draws(module: fx.GraphModule, node: fx.Node) -> bool:
    if draws(node):
        return True
    bodies = [getattr(module, str(n.target), None) for n in node.all_input_nodes if n.op == "get_attr"]
    return any(
        _draws(body, inner) for body in bodies if isinstance(body, fx.GraphModule) for inner in operators_of(body)
    )
