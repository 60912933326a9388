"""Forward and backward of small models under backend="mycc" equal eager torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from .support import check


class Residual(nn.Module):
    """Convolutions, batch norm in training mode, a pool and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = nn.functional.max_pool2d(x + self.conv(x), 2)
        return self.head(x.mean((2, 3)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


MODELS = {
    "mlp": (mlp, lambda: (torch.randn(3, 8),)),
    "residual": (Residual, lambda: (torch.randn(2, 3, 8, 8),)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_equal_to_eager(name: str, train: bool) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make().train(train)
    assert check(model, inputs(), train, calls=2, fullgraph=True) == []
