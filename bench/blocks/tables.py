"""Lookups, choices and work on integers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from block import Block, block
from torch import Tensor, nn


def experts() -> Block:
    """The two best of 8 experts for each of 64 tokens, every expert computed and weighted."""

    def forward(m: Any, x: Tensor) -> Tensor:
        weight, chosen = m.router(x).softmax(-1).topk(2)
        weight = torch.zeros(x.shape[0], 8).scatter(1, chosen, weight / weight.sum(-1, keepdim=True))
        hidden = F.silu(torch.einsum("td,edh->eth", x, m.gate)) * torch.einsum("td,edh->eth", x, m.up)
        return torch.einsum("eth,ehd,te->td", hidden, m.down, weight)

    parts = {"gate": torch.randn(8, 256, 512) / 16, "up": torch.randn(8, 256, 512) / 16}
    parts["down"] = torch.randn(8, 512, 256) / 22
    return block(forward, (torch.randn(64, 256),), router=nn.Linear(256, 8), **parts)


def recommender() -> Block:
    """DLRM: bags of 4 rows out of 26 tables, products of all pairs."""

    def forward(m: Any, dense: Tensor, rows: Tensor) -> Tensor:
        d = m.bottom(dense)
        all_ = torch.stack([d, *(bag(rows[:, i]) for i, bag in enumerate(m.bags))], 1)
        pairs = (all_ @ all_.transpose(1, 2))[:, m.i, m.j]
        return torch.sigmoid(m.top(torch.cat((d, pairs), 1)))

    def mlp(*sizes: int) -> nn.Sequential:
        return nn.Sequential(*(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())))

    i, j = torch.tril_indices(27, 27, -1)
    bags = nn.ModuleList(nn.EmbeddingBag(20000, 32, mode="sum") for _ in range(26))
    parts = {"bottom": mlp(13, 256, 32), "top": nn.Sequential(mlp(383, 512, 256), nn.Linear(256, 1)), "bags": bags}
    return block(forward, (torch.randn(128, 13), torch.randint(0, 20000, (128, 26, 4))), **parts, i=i, j=j)


def features() -> Block:
    """What stands in front of a model of tables: buckets, codes, counts up to a place, one-hot sums."""

    def forward(m: Any, numbers: Tensor, codes: Tensor) -> tuple[Tensor, ...]:
        bucket = torch.bucketize(numbers, m.ends)
        crossed = (codes[:, :1] * 1000003 + codes[:, 1:] * 7919) % 5003
        seen = F.one_hot(codes[:, 0], 50).cumsum(0).gather(1, codes[:, :1]) - 1
        kinds = F.one_hot(bucket, 17).sum(1).float()
        return kinds, m.table(crossed).mean(1), seen, torch.bincount(codes[:, 0], minlength=50)

    inputs = (torch.randn(4096, 12), torch.randint(0, 50, (4096, 4)))
    return block(forward, inputs, ends=torch.linspace(-2, 2, 16), table=nn.Embedding(5003, 16))


def codebook() -> Block:
    """VQ-VAE: the nearest of 512 vectors for each of 1024, and its row."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        far = x.pow(2).sum(-1, keepdim=True) - 2 * x @ m.codes.t() + m.codes.pow(2).sum(-1)
        code = far.argmin(-1)
        return F.embedding(code, m.codes), code

    return block(forward, (torch.randn(1024, 64),), codes=torch.randn(512, 64))


def boxes() -> Block:
    """The head of a detector: maps of three sizes joined, sigmoids, boxes of cells and anchors."""

    def forward(m: Any, small: Tensor, middle: Tensor, large: Tensor) -> Tensor:
        middle = torch.cat((middle, F.interpolate(small, scale_factor=2.0)), 1)
        large = torch.cat((large, F.interpolate(middle, scale_factor=2.0)), 1)
        found = []
        for level, (x, step) in enumerate(((small, 32), (middle, 16), (large, 8))):
            y = m.heads[level](x)
            b, _, h, w = y.shape
            y = y.view(b, 3, 85, h, w).permute(0, 1, 3, 4, 2).sigmoid()
            cell = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1)
            centre, size = (
                (y[..., :2] * 2 - 0.5 + cell) * step,
                (y[..., 2:4] * 2) ** 2 * m.anchors[level][:, None, None],
            )
            found.append(torch.cat((centre, size, y[..., 4:]), -1).flatten(1, 3))
        return torch.cat(found, 1)

    inputs = (torch.randn(1, 128, 10, 10), torch.randn(1, 64, 20, 20), torch.randn(1, 32, 40, 40))
    layers = nn.ModuleList(nn.Conv2d(n, 255, 1) for n in (128, 192, 224))
    return block(forward, inputs, heads=layers, anchors=torch.rand(3, 3, 2) * 100)
