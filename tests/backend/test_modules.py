"""torch's own modules, a training step each: results and gradients equal eager torch's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_modules import ModuleInfo, module_db

from .support import compiled, error, step

pytestmark = pytest.mark.slow


class Called(nn.Module):
    """A module with the keyword arguments of its sample."""

    def __init__(self, module: nn.Module, words: dict[str, Any]) -> None:
        super().__init__()
        self.module, self.words = module, words

    def forward(self, *args: Any) -> Any:
        return self.module(*args, **self.words)


def _called(model: nn.Module, args: Any) -> Any:
    try:
        return model(*args)
    except RuntimeError as refused:
        pytest.skip(f"eager torch refuses the sample: {refused}")


@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_module(info: ModuleInfo) -> None:
    torch.manual_seed(0)
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)  # type: ignore[no-untyped-call]
    sample = samples[0]
    if sample.forward_input is None:
        pytest.skip("no sample calls it")
    made = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    model, args = Called(made.train(), sample.forward_input.kwargs), sample.forward_input.args
    own = copy.deepcopy(model)
    try:
        wanted: Any = step(model, args, model)
        differentiable = True
    except (RuntimeError, TypeError, ValueError):  # of arguments that have no gradient
        differentiable = False
        torch.manual_seed(7)
        wanted = _called(model, args)
    torch.manual_seed(7)
    function = compiled(own)
    got = step(own, args, function) if differentiable else function(*args)
    assert error(got, wanted) < 2e-5
