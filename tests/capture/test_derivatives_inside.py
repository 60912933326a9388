"""Derivatives that forward takes itself: forces, residuals of differential equations, Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch import nn
from torch.func import grad, hessian, jacrev, jvp, vmap


class Energy(nn.Module):
    def __init__(self, body: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.net, self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), body

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self.net, x)


def forces(net: nn.Module, x: torch.Tensor) -> Any:
    x = x.detach().requires_grad_(True)
    energy = net(x).sum()
    return energy, -torch.autograd.grad(energy, x)[0]


def residual(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_(True)
    u = net(x)
    (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return u + torch.autograd.grad(first[:, 0].sum(), x)[0][:, :1]


CASES = {
    "forces": (forces, True),
    "second derivatives": (residual, True),
    "grad": (lambda net, x: grad(lambda z: net(z).sum())(x), True),
    "grad of each": (lambda net, x: vmap(grad(lambda z: net(z).sum()))(x), False),
    "jacobian": (lambda net, x: vmap(jacrev(net))(x), True),
    "forward mode": (lambda net, x: jvp(net, (x,), (torch.ones_like(x),))[1], False),
    "hessian": (lambda net, x: hessian(lambda z: net(z).sum())(x[0]), False),
}


SLOW = ("grad", "grad of each", "forward mode")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_derivatives_inside_of_forward(name: str, tmp_path: Path) -> None:
    body, dynamic = CASES[name]
    torch.manual_seed(0)
    model, x = Energy(body), torch.randn(5, 3)
    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=9)}} if dynamic else None
    path = mycc.compile(model, (x,), out=tmp_path / "m.pkg", dynamic_shapes=shapes)
    x = torch.randn(7 if dynamic else 5, 3)
    found, wanted = mycc.load(path)(x), model(x)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for a, b in pairs:
        torch.testing.assert_close(a, b.detach(), rtol=1e-5, atol=1e-6)
    assert not torch._C._are_functorch_transforms_active()
