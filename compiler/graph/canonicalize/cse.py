"""Pass: common subexpressions."""

from __future__ import annotations

from typing import Any

import torch

from ...model.computed import free_symbols, is_definer
from ...model.equal_nodes import argument_key
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
        key = (node.op, node.target, argument_key(node.args), argument_key(node.kwargs))
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
