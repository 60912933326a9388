"""Fields, sound, images."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from block import Block, block, heads, joined
from torch import Tensor, nn


def radiance() -> Block:
    """NeRF: sines and cosines of places, an MLP, and colours added up along 64 rays of 32 samples."""

    def forward(m: Any, origin: Tensor, direction: Tensor) -> Tensor:
        t = torch.linspace(2.0, 6.0, 32)
        places = origin[:, None] + direction[:, None] * t[:, None]
        angles = (places[..., None] * 2.0 ** torch.arange(10)).flatten(-2)
        y = m.network(torch.cat((places, angles.sin(), angles.cos()), -1))
        alpha = 1 - torch.exp(-F.relu(y[..., 3]) * (t[1] - t[0]))
        passed = torch.cumprod(F.pad(1 - alpha + 1e-10, (1, -1), value=1.0), -1)
        return ((alpha * passed)[..., None] * torch.sigmoid(y[..., :3])).sum(1)

    layers = [layer for n in (63, 256, 256, 256) for layer in (nn.Linear(n, 256), nn.ReLU())]
    network = nn.Sequential(*layers, nn.Linear(256, 4))
    return block(forward, (torch.randn(64, 3), torch.randn(64, 3)), network=network)


def waves() -> Block:
    """wav2vec2: 7 convolutions over a second of sound."""
    shapes = ((1, 10, 5), *((128, 3, 2),) * 4, *((128, 2, 2),) * 2)
    layers = [layer for n, size, step in shapes for layer in (nn.Conv1d(n, 128, size, step), nn.GELU())]
    layers.insert(1, nn.GroupNorm(128, 128))
    return block(lambda m, x: m.layers(x), (torch.randn(1, 1, 16000),), layers=nn.Sequential(*layers))


def spectrogram() -> Block:
    """What speech models read: a Fourier transform of windows, mel bands, logarithms."""

    def forward(m: Any, x: Tensor) -> Tensor:
        found = torch.stft(x, 400, 160, window=m.window, return_complex=True)
        mel = m.bands @ found[..., :-1].abs() ** 2
        log = torch.clamp(mel, min=1e-10).log10()
        return (torch.maximum(log, log.amax((1, 2), keepdim=True) - 8.0) + 4.0) / 4.0

    return block(forward, (torch.randn(1, 32000),), window=torch.hann_window(400), bands=torch.rand(80, 201))


def noise_net() -> Block:
    """A level of a diffusion net: group norms, a time that is added, attention over the places."""

    def forward(m: Any, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None] * torch.exp(-math.log(10000.0) * torch.arange(64) / 64)
        t = m.time(torch.cat((angles.cos(), angles.sin()), -1))
        h = m.second(F.silu(m.norm2(m.first(F.silu(m.norm1(x))) + t[:, :, None, None])))
        x = x + h
        q, k, v = (heads(y.flatten(2).transpose(1, 2), 4) for y in m.qkv(m.norm3(x)).chunk(3, 1))
        y = joined(F.scaled_dot_product_attention(q, k, v)).transpose(1, 2).reshape(x.shape)
        return x + m.out(y)

    norms = {f"norm{i}": nn.GroupNorm(32, 128) for i in (1, 2, 3)}
    convs = {"first": nn.Conv2d(128, 128, 3, padding=1), "second": nn.Conv2d(128, 128, 3, padding=1)}
    rest = {"time": nn.Linear(128, 128), "qkv": nn.Conv2d(128, 384, 1), "out": nn.Conv2d(128, 128, 1)}
    return block(forward, (torch.randn(1, 128, 32, 32), torch.tensor([37.0])), **norms, **convs, **rest)


def deformable() -> Block:
    """Deformable attention: 8 heads read 4 places each of a map, between its elements."""

    def forward(m: Any, q: Tensor, image: Tensor) -> Tensor:
        b, n, c = q.shape
        value = m.value(image.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b * 8, c // 8, 32, 32)
        places = torch.tanh(m.places(q)).view(b, n, 8, 4, 2).transpose(1, 2).flatten(0, 1)
        weight = m.weight(q).view(b, n, 8, 4).softmax(-1).transpose(1, 2).flatten(0, 1)
        found = F.grid_sample(value, places, align_corners=False)
        return m.out((found * weight[:, None]).sum(-1).view(b, c, n).transpose(1, 2))

    linears = {"value": nn.Linear(256, 256), "places": nn.Linear(256, 64), "weight": nn.Linear(256, 32)}
    return block(forward, (torch.randn(1, 300, 256), torch.randn(1, 256, 32, 32)), **linears, out=nn.Linear(256, 256))
