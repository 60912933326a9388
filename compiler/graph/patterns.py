"""Small questions about nodes that all recognising passes ask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from .node import Node


def op(node: Any) -> str:
    """The ATen operator of a node without its overload ("mul"); "" for anything else."""
    target = getattr(node, "target", None)
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return target._opname
    return ""


def is_op(node: Any, *names: str) -> TypeGuard[Node]:
    """Whether the node calls one of these ATen operators, by name without overload: is_op(n, "add", "sub")."""
    return isinstance(node, Node) and node.op == "call_function" and op(node) in names


def arg(node: Node, position: int, name: str = "", default: Any = None) -> Any:
    """An argument by position, else by name."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def only_user(node: Node, user: Node) -> bool:
    """Whether `user` alone reads `node`, so that it may be folded into it."""
    return len(node.users) == 1 and user in node.users


def is_constant(node: Any) -> TypeGuard[Node]:
    """Whether the node reads a parameter, a buffer or a folded constant of the graph."""
    return isinstance(node, Node) and node.op == "get_attr"


def is_tensor(node: Any) -> TypeGuard[Node]:
    """Whether the argument is a node whose value is one tensor; numbers, lists and several results are none."""
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def dtype(node: Node) -> torch.dtype:
    """The element type of a node's value, which is a tensor."""
    return node.meta["val"].dtype


def shape(node: Node) -> tuple[Any, ...]:
    """The sizes of a node's tensor: numbers, or SymInts where they are dynamic."""
    return tuple(node.meta["val"].shape)


def rank(node: Node) -> int:
    """The number of dimensions of a node's tensor."""
    return len(shape(node))


def number(value: Any) -> float | None:
    """A Python number as float; None for anything else (bools, nodes)."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return None


def close(value: float | None, wanted: float) -> bool:
    """Equal up to the rounding of float32 constants that a model writes with a few digits less."""
    return value is not None and math.isclose(value, wanted, rel_tol=1e-6)


@dataclass(frozen=True)
class Product:
    """scalar * factors[0] * factors[1] * ..., and the nodes that spell it."""

    scalar: float
    factors: tuple[Node, ...]
    nodes: tuple[Node, ...]


def product(node: Node) -> Product:
    """Flattens nested multiplications, divisions by numbers, and small whole powers.

    mul(mul(x, 0.5), add(t, 1))  ->  0.5 * [x, add(t, 1)]
    pow(x, 3)                    ->  1.0 * [x, x, x]

    An inner node is only flattened when nothing but the product reads it.
    """
    return _product(node, inner=False)


def _product(node: Node, inner: bool) -> Product:
    own = Product(1.0, (node,), ())
    if inner and len(set(node.users)) > 1:
        return own
    if is_op(node, "mul") and len(node.args) == 2:
        sides = [_factor(a) for a in node.args]
        if any(s is None for s in sides):
            return own
        left, right = sides
        assert left is not None
        assert right is not None
        nodes = (node, *left.nodes, *right.nodes)
        return Product(left.scalar * right.scalar, left.factors + right.factors, nodes)
    if is_op(node, "div") and len(node.args) == 2 and number(node.args[1]) and "rounding_mode" not in node.kwargs:
        base = _factor(node.args[0])
        if base is not None:
            return Product(base.scalar / float(node.args[1]), base.factors, (node, *base.nodes))
    if is_op(node, "pow") and number(node.args[1]) in (2.0, 3.0) and isinstance(node.args[0], Node):
        return Product(1.0, (node.args[0],) * int(node.args[1]), (node,))
    if is_op(node, "square"):
        return Product(1.0, (node.args[0],) * 2, (node,))
    return own


def _factor(value: Any) -> Product | None:
    constant = number(value)
    if constant is not None:
        return Product(constant, (), ())
    return _product(value, inner=True) if is_tensor(value) else None


@dataclass(frozen=True)
class Shifted:
    """term + offset."""

    term: Node
    offset: float


def plus_number(node: Any) -> Shifted | None:
    """add(x, 1.0) or add(1.0, x) as (x, 1.0)."""
    if not is_op(node, "add") or number(node.kwargs.get("alpha", 1)) != 1.0:
        return None
    a, b = node.args
    if number(b) is not None and isinstance(a, Node):
        return Shifted(a, float(b))
    if number(a) is not None and isinstance(b, Node):
        return Shifted(b, float(a))
    return None


def operands(node: Any, name: str) -> tuple[Any, Any] | None:
    """The two operands of add or mul with no alpha; None for any other node."""
    if not is_op(node, name) or len(node.args) != 2 or number(node.kwargs.get("alpha", 1)) != 1.0:
        return None
    return node.args[0], node.args[1]


def between(node: Node, source: Node) -> list[Node]:
    """The calls from the source (not included) to the node (included), operands first."""
    seen: dict[Node, None] = {}
    stack = [node]
    while stack:
        n = stack.pop()
        if n is source or n in seen or n.op != "call_function":
            continue
        seen[n] = None
        stack.extend(n.all_input_nodes)
    return list(reversed(seen))


def zero_padding(pad: Node) -> list[int] | None:
    """The amounts of padding with zeros, last dimension first; None for other padding."""
    sides: Any = pad.args[1]
    if is_op(pad, "pad"):
        if arg(pad, 2, "mode", "constant") != "constant":
            return None
        value = arg(pad, 3, "value")
    else:
        value = arg(pad, 2, "value", 0)
    zero = value is None or number(value) == 0.0
    return list(sides) if zero and all(isinstance(n, int) for n in sides) else None
