"""Attention in a training step: the scores are never written, forward or backward."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Two heads of 8, which share their keys and values, masked or causal."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.masked = masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (2, 8)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (1, 16)).transpose(1, 2).chunk(2, -1)
        mask = (x[:, :, 0] > -1)[:, None, None] if self.masked else None
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=not self.masked, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


@pytest.mark.parametrize("masked", [False, True], ids=["causal", "masked"])
def test_long_sequences(masked: bool, tmp_path: Path) -> None:
    """Gradients at 2048 places against float64; memory is a multiple of the places, where the scores are 4 million."""
    torch.manual_seed(0)
    model, path = Attention(masked), tmp_path / "m.pkg"
    places = {1: torch.export.Dim("places", min=2, max=4096)}
    mycc.compile_training(
        model, (torch.randn(1, 40, 16),), targets=(torch.randint(0, 3, (1, 40)),), loss=loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), out=path, entries=["gradients"],
        dynamic_shapes={"x": places, "target": places},
    )  # fmt: skip
    (target,) = mycc.explain(path, sizes={"places": 2048}).data["entry_points"][0]["targets"].values()
    row = 4 * 2048  # bytes of a column of activations
    assert 64 * row < target["memory"]["arena"] < 300 * row  # of scores there are 2 * 2048 columns, and as many weights

    x, y = torch.randn(1, 2048, 16), torch.randint(0, 3, (1, 2048))
    _, found = mycc.load(path).gradients(x, y)
    parameters = dict(model.named_parameters())
    eager = torch.autograd.grad(loss(model(x), y), list(parameters.values()))
    model.double()
    exact = torch.autograd.grad(loss(model(x.double()), y), list(parameters.values()))
    for name, own, wanted in zip(parameters, eager, exact, strict=True):
        error = (found[name].double() - wanted).abs().max()
        assert error <= 2 * (own.double() - wanted).abs().max() + 1e-7, name
