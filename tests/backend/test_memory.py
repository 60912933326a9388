"""A budget of memory: the forward graph keeps less, the backward graph computes more, the gradients are the same."""

from __future__ import annotations

import copy

import mycc
import pytest
import torch
from mycc.compiler.backend.settings import settings_of
from torch import nn

from .support import compiled, step


def kept_bytes(model: nn.Module, x: torch.Tensor, budget: float) -> tuple[int, list[torch.Tensor | None]]:
    """Bytes that a forward pass keeps for the backward pass beside parameters and inputs, and the gradients."""
    own = copy.deepcopy(model)
    held = {p.data_ptr() for p in own.parameters()}
    found: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in held:
            found[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    function = compiled(own, {"memory_budget": budget})
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _, gradients = step(own, (x,), function)
    return sum(found.values()), gradients


def test_a_smaller_budget_keeps_less_and_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(16, 16), nn.GELU())]
    model, x = nn.Sequential(*layers), torch.randn(64, 16)
    whole, wanted = kept_bytes(model, x, 1.0)
    less, found = kept_bytes(model, x, 0.3)
    assert less < 0.6 * whole
    for got, own in zip(found, wanted, strict=True):
        assert got is not None
        assert own is not None
        torch.testing.assert_close(got, own, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("budget", [-0.1, 1.5, "half", True])
def test_a_budget_is_a_share(budget: object) -> None:
    with pytest.raises(mycc.CompileError, match="memory_budget is a number from 0 to 1"):
        settings_of(options={"memory_budget": budget})
