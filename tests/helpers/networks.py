"""Small networks that several folders of tests compile."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Convolutions"]


class Convolutions(nn.Module):
    """A plain convolution, one by channels with a residual, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        return self.head((self.second(x) + x).mean((2, 3)))
