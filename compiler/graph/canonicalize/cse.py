"""Pass: common subexpressions."""

from __future__ import annotations

from typing import Any

import torch

from ...model.computed import free_symbols, is_definer
from ..node import Node
from ..work import Work, merged_origins

_RANDOM = torch.Tag.nondeterministic_seeded


def common_subexpressions(work: Work) -> dict[str, int]:
    """a = mul(x, y)                    a = mul(x, y)
       b = mul(x, y)           ->       z = add(a, a)
       z = add(a, b)

    Needs nothing (NORMAL finds more); establishes UNIQUE: no two nodes with equal operator and arguments. Numbers are
    compared with their type and sign (1 is not 1.0, 0.0 is not -0.0). Random operators are kept apart,
    and so are those that find a size.
    """
    seen: dict[Any, Node] = {}
    count = 0
    for node in work.nodes():
        if node.op not in ("call_function", "get_attr") or _is_random(node) or _finds_size(node):
            continue
        key = (node.op, node.target, _key(node.args), _key(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            if first.op == "call_function" and "mycc_size" not in first.meta:
                first.meta["mycc_origins"] = merged_origins((first, node))
            work.replace(node, first)
            count += 1
    return {"common subexpressions": count} if count else {}


def _is_random(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and _RANDOM in node.target.tags


def _finds_size(node: Node) -> bool:
    """Two that find the same size find it under two names."""
    return is_definer(node) and bool(free_symbols(node.meta.get("val")))


def _key(value: Any) -> Any:
    """A hashable form of an argument."""
    if isinstance(value, Node):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_key(v) for v in value)
    if isinstance(value, dict):
        return tuple(sorted((k, _key(v)) for k, v in value.items()))
    return type(value).__name__, repr(value)
