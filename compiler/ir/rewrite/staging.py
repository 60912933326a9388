"""Primitives of where operands are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..expr import Expr, Load, rewrite
from ..nodes import Node
from .expressions import map_expressions

N = TypeVar("N", bound=Node)


def cache_read(node: N, copies: Mapping[Load, Load]) -> N:
    """Loads of an operand become loads of a copy, which a kernel in front of the node makes in a layout of its own.

        y[c*8 + r] = x[r*9 + c]      ->      copy[c*8 + r] = x[r*9 + c];   y[c*8 + r] = copy[c*8 + r]

    Law: the copy holds at each new place what the operand holds at the old one, and nobody writes the operand between
    the copy and the node.
    """

    def leaf(e: Expr) -> Expr | None:
        return copies.get(e) if isinstance(e, Load) else None

    return map_expressions(node, lambda e: rewrite(e, leaf)) if copies else node
