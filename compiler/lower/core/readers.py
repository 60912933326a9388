"""What reads the results of a node, through elementwise operators and pools."""

from __future__ import annotations

import torch
from torch.fx import Node

from ...graph.patterns import is_op

POOLS = tuple(f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for n in (1, 2, 3))


def stays_elementwise(node: Node) -> bool:
    """Whether nothing but elementwise operators, pools and the caller reads what comes of the node: nobody who would
    have its channels side by side.
    """
    seen: set[Node] = set()
    pending = list(node.users)
    while pending:
        user = pending.pop()
        if user in seen or user.op == "output":
            continue
        if not _is_elementwise(user) and not is_op(user, *POOLS):
            return False
        seen.add(user)
        pending += user.users
    return True


def _is_elementwise(node: Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())
