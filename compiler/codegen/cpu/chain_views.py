"""The view of a chain of convolutions: an argument struct and an epilogue for each of its links."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.plans.matrix import MatrixPlan
from ...ir.rewrite.epilogues import link_stores
from ...ir.structured import ConvChain
from .lift import Lifted
from .scope import Param, Scope
from .structured_views import FieldPrinter, conv_epilogue, conv_fields
from .views.structured import ChainKernel, ChainLink, Epilogue


def chain_view(node: ConvChain, plan: MatrixPlan) -> ChainKernel:
    """A chain of convolutions by the plans of its links."""
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    scope.locals.update(dict.fromkeys(node.locals, "to"))
    lifted = Lifted()
    links = tuple(_link(scope, lifted, node, i, plan.links[i]) for i in range(len(node.links)))
    return ChainKernel("conv_chain.cpp.j2", scope.params(), links)


def _link(scope: Scope, lifted: Lifted, chain: ConvChain, i: int, plan: MatrixPlan) -> ChainLink:
    link = chain.links[i]
    part = "depthwise" if link.depthwise else "expand" if i == 0 else "project"
    text = FieldPrinter(scope, f"{part}_", lifted)
    epilogue = conv_epilogue(text, link, link_stores(chain, i), plan)
    inside = i < len(chain.locals)  # a pixel's channels lie at `to`
    return ChainLink(part, conv_fields(text, link), epilogue, inside, _used(scope.params(), epilogue))


def _used(params: Sequence[Param], epilogue: Epilogue) -> tuple[Param, ...]:
    """The parameters that an epilogue names."""
    lanes = epilogue.lanes
    texts = (*lanes.pre, *lanes.main, *lanes.tail, *epilogue.prefetch, *epilogue.added, *(epilogue.results or ()))
    words = set(re.findall(r"\w+", " ".join(texts)))
    return tuple(p for p in params if p.name in words)
