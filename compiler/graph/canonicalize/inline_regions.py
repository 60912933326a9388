"""Pass: the bodies of grad-mode and autocast regions in place of the region nodes."""

from __future__ import annotations

from typing import Any

import torch.fx

from ..node import Node
from ..work import Work

#: region operator -> position of the body among its arguments; the operands follow it
_BODY = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}


def inline_regions(work: Work, module: torch.fx.GraphModule) -> dict[str, int]:
    """r = wrap_with_set_grad_enabled(False, body, x)         y = cos(x)
       y = r[0]                                          ->                where body(x) = (cos(x),)

    Needs nothing. Autocast regions are inlined only when autocast is off in them; others stay and are reported.
    """
    count = 0
    for node in work.nodes():
        name = str(node.target).rsplit(".", 1)[-1]
        if node.op != "call_function" or name not in _BODY:
            continue
        if name == "wrap_with_autocast" and node.args[2]:
            continue
        position = _BODY[name]
        body = getattr(module, str(node.args[position].target))
        _inline(work, node, body, node.args[position + 1 :])
        count += 1
    return {"regions inlined": count} if count else {}


def _inline(work: Work, region: Node, body: torch.fx.GraphModule, operands: tuple[Any, ...]) -> None:
    env: dict[Any, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
    for inner in body.graph.nodes:
        if inner.op == "output":
            results = torch.fx.node.map_arg(inner.args[0], lambda n: env[n])
        elif inner.op != "placeholder":
            with work.graph.inserting_before(region):
                env[inner] = work.graph.node_copy(inner, lambda n: env[n])
    for user in list(region.users):
        user.replace_all_uses_with(results[user.args[1]])
        work.graph.erase_node(user)
    work.graph.erase_node(region)
