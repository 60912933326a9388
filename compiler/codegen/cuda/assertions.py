"""What the model asks of its values, on a GPU: a kernel that reports through the status word, as a bad index does."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.index import ONE
from ...ir.program import Assert
from ...machine.gpu import Device
from .kernel import Launch, grid
from .maps import finish_routine
from .scope import TritonScope

__all__ = ["assert_launch"]


@dataclass(frozen=True)
class AssertView:
    params: str
    condition: str
    pdl: bool


def assert_launch(node: Assert, name: str, device: Device) -> Launch:
    """One program, which stores the launch's number where the condition does not hold."""
    scope = TritonScope.of(node)
    view = AssertView("", scope.buffer(node.condition), device.pdl)
    scope.checks = True
    launch = finish_routine("assert.py.j2", view, scope, name, grid(ONE), node, 1, device)
    return replace(launch, failure=node.text)
