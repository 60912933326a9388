"""Pass: dead code and constants that nothing reads."""

from __future__ import annotations

from ...model.computed import KEPT
from ..work import Work


def dead_code(work: Work) -> dict[str, int]:
    """t = tanh(p)   (nobody reads t)     ->     nothing, then p likewise

    Needs nothing; establishes LIVE: every node but inputs reaches an output, every constant is read. All operators of
    the graph are functional, so an unused one has no effect.
    """
    count = 0
    for node in work.nodes(backwards=True):
        if node.op in ("call_function", "get_attr") and not node.users and not node.meta.get(KEPT):
            work.graph.erase_node(node)
            count += 1
    used = {str(node.target) for node in work.graph.nodes if node.op == "get_attr"}
    for name in [name for name in work.constants if name not in used]:
        del work.constants[name]
    return {"dead nodes": count} if count else {}
