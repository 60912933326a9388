"""A block in 16 bits whose norm, activation, attention and scaled convolution are spelled out."""

from __future__ import annotations

import torch
from torch import nn


class Spelled(nn.Module):
    """Products are of small whole numbers, so that their sums are exact in any order; all else rounds at each step."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        whole = torch.randint(-3, 4, (16, 16), generator=generator)
        self.matrix = nn.Buffer(whole.to(dtype))
        self.bias = nn.Buffer((torch.randn(16, generator=generator) * 8).to(dtype))
        self.norm = nn.BatchNorm2d(4).to(dtype)
        self.norm.running_mean.copy_(torch.tensor([0.3, -1.7, 2.1, 0.7]))
        self.norm.running_var.copy_(torch.tensor([1.3, 0.7, 2.1, 3.7]))
        self.conv = nn.Conv2d(2, 4, 3, bias=False, dtype=dtype)
        self.conv.weight.data = torch.randint(-3, 4, (4, 2, 3, 3), generator=generator).to(dtype)

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ self.matrix + self.bias
        scaled = y / ((y * y).amax(-1, keepdim=True) * 0.3 + 1e-3)
        gelu = 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))
        scores = (x @ x.transpose(-1, -2)) * 0.3
        normed = (self.conv(image) - 0.3) * 1.7 + 0.1
        shifted = scores - scores.amax(-1, keepdim=True)
        return y * 1.7 + 0.3, scaled * 1.3, shifted, normed, gelu, self.norm(self.conv(image))


def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-4, 5, (2, 12, 16), generator=generator).to(dtype)
    return x, torch.randint(-4, 5, (1, 2, 8, 8), generator=generator).to(dtype)
