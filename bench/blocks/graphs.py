"""Messages along the edges of graphs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from block import Block, block
from torch import Tensor, nn

NODES, EDGES = 1000, 8000


def edges() -> tuple[Tensor, Tensor]:
    return torch.randint(0, NODES, (EDGES,)), torch.randint(0, NODES, (EDGES,))


def message_passing() -> Block:
    """A network on each edge's ends and features; the messages are added up at the nodes."""

    def forward(m: Any, h: Tensor, e: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for message, update in zip(m.messages, m.updates, strict=True):
            sent = message(torch.cat((h[source], h[target], e), -1))
            h = h + update(torch.cat((h, torch.zeros_like(h).index_add(0, target, sent)), -1))
        return h

    layers = lambda n: nn.ModuleList(  # noqa: E731
        nn.Sequential(nn.Linear(n, 64), nn.SiLU(), nn.Linear(64, 64)) for _ in range(3)
    )
    inputs = (torch.randn(NODES, 64), torch.randn(EDGES, 8), *edges())
    return block(forward, inputs, messages=layers(136), updates=layers(128))


def gat() -> Block:
    """Graph attention: a softmax over the edges that end in a node, in 4 heads."""

    def forward(m: Any, h: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for layer, left, right in zip(m.layers, m.left, m.right, strict=True):
            x = layer(h).view(-1, 4, 32)
            score = F.leaky_relu((x * left.weight).sum(-1)[source] + (x * right.weight).sum(-1)[target], 0.2)
            index = target[:, None].expand_as(score)
            largest = score.new_full((h.shape[0], 4), -math.inf).scatter_reduce(0, index, score, "amax")
            weight = torch.exp(score - largest[target])
            total = torch.zeros_like(largest).scatter_add(0, index, weight)
            sent = x[source] * (weight / total[target]).unsqueeze(-1)
            h = F.elu(torch.zeros_like(x).index_add(0, target, sent).flatten(1))
        return h

    parts = lambda make: nn.ModuleList(make() for _ in range(2))  # noqa: E731
    vectors = lambda: parts(lambda: nn.Embedding(4, 32))  # noqa: E731
    inputs = (torch.randn(NODES, 128), *edges())
    return block(forward, inputs, layers=parts(lambda: nn.Linear(128, 128)), left=vectors(), right=vectors())


def sage() -> Block:
    """GraphSAGE: the mean and the largest of the neighbours, by scatter_reduce."""

    def forward(m: Any, h: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for layer in m.layers:
            index = target[:, None].expand(-1, h.shape[1])
            mean = torch.zeros_like(h).scatter_reduce(0, index, h[source], "mean", include_self=False)
            most = torch.zeros_like(h).scatter_reduce(0, index, h[source], "amax", include_self=False)
            h = F.relu(layer(torch.cat((h, mean, most), -1)))
        return h

    layers = nn.ModuleList(nn.Linear(192, 64) for _ in range(3))
    return block(forward, (torch.randn(NODES, 64), *edges()), layers=layers)


def edge_conv() -> Block:
    """Points of a cloud: the 16 nearest neighbours, a network on the differences, the largest."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            near = torch.cdist(x, x).topk(16, largest=False).indices
            others = torch.stack([a[i] for a, i in zip(x.unbind(0), near.unbind(0), strict=True)])
            own = x[:, :, None].expand_as(others)
            x = layer(torch.cat((own, others - own), -1)).amax(2)
        return x

    layers = nn.ModuleList(nn.Sequential(nn.Linear(2 * n, 64), nn.ReLU(), nn.Linear(64, 64)) for n in (3, 64))
    return block(forward, (torch.randn(1, 512, 3),), layers=layers)
