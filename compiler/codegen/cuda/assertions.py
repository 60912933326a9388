"""What the model asks of its values, on a GPU: a kernel that reports through the status word, as a bad index does."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.index import ONE
from ...ir.plans.gpu import PartPlan
from ...ir.program import Assert
from .kernel import Launch, grid
from .maps import finish
from .scope import TritonScope

__all__ = ["assert_launch"]


@dataclass(frozen=True)
class AssertView:
    params: str
    condition: str
    pdl: bool


def assert_launch(node: Assert, name: str, plan: PartPlan) -> Launch:
    """One program, which stores the launch's number where the condition does not hold."""
    scope = TritonScope.of(node, plan)
    view = AssertView("", scope.buffer(node.condition), plan.pdl)
    scope.checks = True
    launch = finish("assert.py.j2", view, scope, name, grid(ONE), node, plan)
    return replace(launch, failure=node.text)
