"""What cannot be trained: each by name, with the user's line where there is one. Nothing here is built."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch import nn


@torch.library.custom_op("mycc_tests::no_derivative", mutates_args=())
def no_derivative(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@no_derivative.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self, body: Callable[[nn.Module, Any], Any]) -> None:
        super().__init__()
        self.used, self.unused, self.body = nn.Linear(4, 4), nn.Linear(4, 4), body

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self, x)


class Own(torch.optim.AdamW):
    """Another class than the table's, which may have another formula."""


def plain(m: Any, x: Any) -> Any:
    return m.used(x)


def cut(m: Any, x: Any) -> Any:
    return m.used(x) + m.unused(x).detach()  # the cut


def custom(m: Any, x: Any) -> Any:
    return torch.ops.mycc_tests.no_derivative(m.used(x))  # the operator


def slope(m: Any, x: Any) -> Any:
    x = x.detach().requires_grad_(True)
    energy = torch.tanh(m.used(x)).sum()
    return energy + torch.autograd.grad(energy, x, create_graph=True)[0].sum()  # the slope


def mean(y: Any) -> Any:
    return y.mean()


def sgd(m: nn.Module) -> Any:
    return torch.optim.SGD(m.parameters(), lr=0.1)


FREEZE = ("unused.*",)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "unused": ({}, "parameter 'unused.weight' gets no gradient: the model does not use it"),
    "cut": ({"body": cut}, r"parameter 'unused.weight' gets no gradient: the loss does not depend(.|\n)*the cut"),
    "vector": ({"loss": lambda y: y.sum(-1), "freeze": FREEZE}, r"the loss is a tensor of float32\[3\], not one real"),
    "integer": ({"loss": lambda y: y.argmax(), "freeze": FREEZE}, r"the loss is a tensor of int64\[\]"),
    "no number": ({"loss": lambda y: {"a": y}}, r"the loss is no tensor: it returns a dict\n *test_refusals.py:\d+"),
    "python": ({"loss": lambda y: 3.0}, r"the loss is no tensor: it returns a float\n *test_refusals.py:\d+"),
    "many targets": (
        {"targets": (torch.ones(1),)},
        r"does not take the output and 1 target: too many positional arguments\n *test_refusals.py:\d+",
    ),
    "few targets": (
        {"loss": nn.CrossEntropyLoss()},
        "does not take the output and 0 targets: missing a required argument: 'target'",
    ),
    "derivatives": ({"body": slope, "freeze": FREEZE}, "takes derivatives in its forward"),
    "custom": ({"body": custom, "freeze": FREEZE}, r"no_derivative(.|\n)*no derivative(.|\n)*the operator"),
    "own optimizer": ({"optimizer": lambda m: Own(m.parameters())}, "no formula for the optimizer .*Own"),
    "no row": ({"optimizer": lambda m: torch.optim.LBFGS(m.parameters())}, "no formula for the optimizer .*LBFGS"),
    "no optimizer": ({"optimizer": lambda m: 0.1}, "the optimizer is a float, not an object of torch.optim"),
    "others": ({"optimizer": lambda m: sgd(nn.Linear(2, 3))}, r"a parameter of shape \[3, 2\] that the model does not"),
    "frozen": ({"freeze": ("*",)}, "nothing to train: all parameters of the optimizer are frozen"),
    "pattern": ({"freeze": ("layers.*",)}, r"no parameter is called 'layers.\*'"),
    "clip": ({"clip_norm": -1.0}, "clip_norm has to be a number above 0, not -1.0"),
    "entry": ({"entries": ("stepp",)}, "no entry point 'stepp' to make"),
    "targets": ({"loss": None, "targets": torch.ones(1)}, "targets are given without a loss"),
    "no loss": ({"loss": None, "body": lambda m, x: (m.used(x),)}, "returns a tuple without a loss"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused_by_name(name: str, tmp_path: Path) -> None:
    changes, message = CASES[name]
    arguments: dict[str, Any] = {"body": plain, "loss": mean, "optimizer": sgd, **changes}
    model = Net(arguments.pop("body"))
    make = arguments.pop("optimizer")
    with pytest.raises(mycc.CompileError) as raised:
        mycc.compile_training(
            model, (torch.randn(3, 4),), optimizer=make(model), out=tmp_path / "no.pkg", **arguments
        )  # fmt: skip
    assert re.search(message, str(raised.value)), str(raised.value)
    assert not list(tmp_path.iterdir())
