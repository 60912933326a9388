"""Small models of the kinds that people train: a factory each gives (module, example arguments)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Example = tuple[nn.Module, tuple[Tensor, ...]]


def mlp() -> Example:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), (torch.randn(3, 8),)


class Residual(nn.Module):
    """Convolutions, batch norm in training mode, a pool and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = F.max_pool2d(x + self.conv(x), 2)
        return self.head(x.mean((2, 3)))


def residual() -> Example:
    return Residual(), (torch.randn(2, 3, 8, 8),)


class Recurrent(nn.Module):
    """An LSTM cell over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(50, 16), nn.LSTMCell(16, 12), nn.Linear(12, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        state, found = None, []
        for x in self.embedding(tokens).unbind(1):
            state = self.cell(x, state)
            found.append(state[0])
        return self.head(torch.stack(found, 1))


def recurrent() -> Example:
    return Recurrent(), (torch.randint(0, 50, (2, 5)),)


class Attention(nn.Module):
    """Causal, masked, and grouped attention over one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(16, 48)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.projection(x).chunk(3, -1))
        return (
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
            F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
        )


def attention() -> Example:
    return Attention(), (torch.randn(2, 6, 16), torch.rand(6, 6) > 0.3)


class Block(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(4, outer)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(self.conv(x)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = Block(3, 8), Block(8, 16), Block(16, 8)
        self.down, self.up = nn.Conv2d(8, 8, 3, 2, 1), nn.ConvTranspose2d(16, 8, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        return self.last(torch.cat([fine, self.up(self.second(self.down(fine)))], 1))


def unet() -> Example:
    return UNet(), (torch.randn(2, 3, 8, 12),)


class GraphNet(nn.Module):
    """Means over the neighbours of each node."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        sums = torch.zeros_like(h).index_add(0, target, h[source])
        count = torch.zeros_like(h[:, 0]).index_add(0, target, torch.ones_like(h[:, 0])[source]).clamp(min=1)
        return self.last(sums / count[:, None]).log_softmax(-1)


def graph_net() -> Example:
    source, target = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 2, 0]])
    return GraphNet(), (torch.randn(6, 8), source, target)


class Classifier(nn.Module):
    """A loss with smoothed labels, some of which are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 10)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(x), labels, label_smoothing=0.1, ignore_index=3)


def classifier() -> Example:
    return Classifier(), (torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 4, 9]))


MODELS: dict[str, Callable[[], Example]] = {
    f.__name__: f for f in (mlp, residual, recurrent, attention, unet, graph_net, classifier)
}
