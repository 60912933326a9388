"""What mycc does not take runs in eager torch, is told once with its line, and is an error when options are strict."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.backend.notices import FallbackWarning
from mycc.compiler.backend.settings import settings_of
from mycc.runtime.errors import CompileError
from torch import nn

from .support import check, compiled


@torch.library.custom_op("mycc_test::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.last(nn.functional.dropout(torch.relu(self.first(x)), 0.5, self.training))
        return nn.functional.dropout(y, 0.25) + torch.rand_like(y), torch.randint(0, 9, (3,))


@pytest.mark.parametrize("budget", [1.0, 0.0])
def test_dropout_draws_from_torch_s_generators(budget: float) -> None:
    """Numbers are those of eager torch, the same in forward and backward, under any budget of memory."""
    model, x = Dropped(), torch.randn(6, 8)
    function = compiled(model, options={"strict": True, "memory_budget": budget})

    def run(call: Callable[..., Any]) -> tuple[Any, ...]:
        model.zero_grad()
        torch.manual_seed(3)
        found = [call(x) for _ in range(2)]
        sum(y.square().sum() for y, _ in found).backward()
        return found, [p.grad for p in model.parameters()], torch.rand(1)

    torch.testing.assert_close(run(function), run(model))


class Chosen(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        u = torch.rand_like(x)
        return torch.bernoulli(torch.sigmoid(x)) * 2 + u, torch.randn(3), torch.rand_like(u) + u


def test_numbers_that_depend_on_values_are_drawn_between_the_parts() -> None:
    x, function = torch.randn(4, 5), compiled(Chosen())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.manual_seed(3)
        got = function(x)
    torch.manual_seed(3)
    torch.testing.assert_close(got, Chosen()(x))
    notices = [w for w in caught if issubclass(w.category, FallbackWarning)]
    assert len(notices) == 1
    assert "aten::bernoulli to eager torch: its random numbers" in str(notices[0].message)
    assert notices[0].filename == __file__
    assert "bernoulli(" in linecache.getline(__file__, notices[0].lineno)


class Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.ops.mycc_test.doubled(x.sin())
        return y.cos() + x, y.t()


def test_an_unknown_operator_runs_between_compiled_parts() -> None:
    notices = check(Unknown(), (torch.randn(4, 5),))
    assert notices == ["mycc leaves mycc_test.doubled to eager torch: mycc has no lowering for it"]


def test_strict_names_the_operator_and_its_line() -> None:
    function = compiled(Unknown(), options={"strict": True})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as error:
        function(torch.randn(4, 5))
    text = str(error.value)
    assert "1 operator would run in eager torch" in text
    assert f"{__file__}:" in text
    assert "torch.ops.mycc_test.doubled(x.sin())" in text


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("fast", {}, "unknown mode 'fast'"),
        (None, {"schedule.fuze": True}, "unknown option 'schedule.fuze'"),
        (None, {"strict": "yes"}, "option strict is True or False"),
        (None, {"threads": 0}, "threads has to be a number from 1"),
    ],
)
def test_wrong_settings(mode: str | None, options: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        settings_of(mode, options)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_of_torch_compile(mode: str) -> None:
    assert settings_of(mode).compile.tuning == mode.startswith("max-autotune")
