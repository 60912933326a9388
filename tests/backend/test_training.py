"""Forward and backward of models under backend="mycc" equal eager torch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from .models import MODELS
from .support import check, compiled, error, step

#: of tests/models/small_zoo.py
ZOO = ("resnet50", "mobilenetv2", "bert", "vit", "gpt2", "llama", "whisper_enc")


@pytest.mark.parametrize("name", ["mlp", "recurrent", "attention"])
def test_inference(name: str) -> None:
    torch.manual_seed(0)
    model, args = MODELS[name]()
    assert check(model.eval(), args, fullgraph=True) == []


@pytest.mark.parametrize("name", [pytest.param(m, marks=pytest.mark.slow) if m == "unet" else m for m in MODELS])
def test_training_step(name: str) -> None:
    torch.manual_seed(0)
    model, args = MODELS[name]()
    assert check(model.train(), args, train=True, calls=2, fullgraph=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str, train: bool) -> None:
    from ..models import small_zoo

    model, args = getattr(small_zoo, name)()
    for part in model.train(train).modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    assert check(model, args, train) == []


class Pooled(nn.Module):
    """Convolutions around a pool over padding: its gradient is computed in the order of the weight gradient's rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.Conv2d(8, 16, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.max_pool2d(nn.functional.pad(self.first(x), (1, 1, 1, 1)), 3, 2))


def test_gradient_of_a_pool_over_padding() -> None:
    torch.manual_seed(0)
    assert check(Pooled(), (torch.randn(2, 3, 32, 32),), train=True, fullgraph=True) == []


def test_losses_of_many_steps() -> None:
    """An optimizer between the calls changes the parameters that the next call reads."""
    torch.manual_seed(0)
    model, (x,) = MODELS["mlp"]()
    own, target = copy.deepcopy(model), torch.randn(3, 4)
    function = compiled(own)
    losses: list[list[float]] = [[], []]
    for found, network, call in zip(losses, (model, own), (model, function), strict=True):
        optimizer = torch.optim.AdamW(network.parameters(), 1e-2)
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(call(x), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    assert losses[0][-1] < losses[0][0] / 2
    assert max(abs(a - b) / a for a, b in zip(*losses, strict=True)) < 1e-4


def test_frozen_parameters_have_no_gradients() -> None:
    torch.manual_seed(0)
    model, args = MODELS["mlp"]()
    model[0].requires_grad_(False)  # type: ignore[index]
    _, grads = step(model, args, compiled(copy.deepcopy(model)))
    assert grads[0] is None
    assert check(model, args, train=True) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_types(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, args = MODELS["mlp"]()
    slack = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-12}[dtype]
    assert check(model.to(dtype), [a.to(dtype) for a in args], train=True, slack=slack) == []


def test_autocast() -> None:
    torch.manual_seed(0)
    model, (x,) = MODELS["mlp"]()
    own = copy.deepcopy(model)
    function = compiled(own)
    with torch.autocast("cpu", torch.bfloat16):
        got, wanted = step(own, (x,), function), step(model, (x,), model)
    assert got[0].dtype == wanted[0].dtype
    assert error(got, wanted) < 4e-2


class Fused(nn.Module):
    """TorchDynamo writes prims.fma for an in-place sum whose factor is a tensor."""

    def forward(self, x: torch.Tensor, a: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        y = (x * 2).addcmul_(a, a + 1, value=factor.detach())
        return torch.sin(y).add_(x, alpha=factor.detach())


def test_gradients_of_fused_multiply_adds() -> None:
    torch.manual_seed(0)
    args = [torch.randn(5, 7), torch.randn(7), torch.tensor(0.37)]
    assert check(Fused(), args, train=True, fullgraph=True) == []


class ComplexRotary(nn.Module):
    """Pairs of numbers turned by complex ones; the backward takes conjugates, which torch reads in place."""

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2)


def test_gradients_of_what_complex_numbers_turn() -> None:
    assert check(ComplexRotary(), (torch.randn(2, 5, 8), torch.randn(5, 4)), train=True, fullgraph=True) == []
