"""Attention with windows, masks, biases, shared heads and long sequences; blocks around it."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from block import Block, block, feed_forward, heads, joined
from torch import Tensor, nn


def conformer() -> Block:
    """Speech: two half feed forwards around attention and a gated depthwise convolution."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for p in m.blocks:
            x = x + 0.5 * p["first"](x)
            q, k, v = (heads(t, 4) for t in p["qkv"](x).chunk(3, -1))
            x = x + p["out"](joined(F.scaled_dot_product_attention(q, k, v)))
            y = F.glu(p["gate"](p["norm"](x).transpose(1, 2)), 1)
            x = x + p["point"](F.silu(p["settled"](p["depth"](y)))).transpose(1, 2)
            x = p["last"](x + 0.5 * p["second"](x))
        return x

    def one() -> nn.ModuleDict:
        depth = nn.Conv1d(256, 256, 31, padding=15, groups=256)
        return nn.ModuleDict({
            "first": feed_forward(256, activation=nn.SiLU), "qkv": nn.Linear(256, 768), "out": nn.Linear(256, 256),
            "norm": nn.LayerNorm(256), "gate": nn.Conv1d(256, 512, 1), "depth": depth,
            "settled": nn.BatchNorm1d(256), "point": nn.Conv1d(256, 256, 1),
            "second": feed_forward(256, activation=nn.SiLU), "last": nn.LayerNorm(256),
        })  # fmt: skip

    return block(forward, (torch.randn(1, 200, 256),), blocks=nn.ModuleList(one() for _ in range(2)))


def _causal(size: int, length: int = 2048) -> Block:
    """Attention alone, 4 heads."""
    q, k, v = (torch.randn(1, 4, length, size) for _ in range(3))
    return block(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v))


def causal_80() -> Block:
    return _causal(80)


def causal_96() -> Block:
    return _causal(96)


def causal_128() -> Block:
    return _causal(128)


def sliding_window() -> Block:
    """8 heads that share 2 of keys, each of 1024 places sees the 128 before it."""

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = heads(m.q(x), 8), heads(m.k(x), 2), heads(m.v(x), 2)
        at = torch.arange(x.shape[1])
        mask = (at[None] <= at[:, None]) & (at[None] > at[:, None] - 128)
        return m.o(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)))

    linears = {"q": nn.Linear(512, 512), "k": nn.Linear(512, 128), "v": nn.Linear(512, 128), "o": nn.Linear(512, 512)}
    return block(forward, (torch.randn(1, 1024, 512),), **linears)


def relative_bias() -> Block:
    """T5: buckets of distances look up what is added to the scores."""

    def forward(m: Any, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        far = at[None] - at[:, None]
        near = far.abs()
        log = 8 + (torch.log(near.clamp(min=1).float() / 8) / math.log(16) * 8).long()
        bucket = torch.where(far > 0, 16, 0) + torch.where(near < 8, near, log.clamp(max=15))
        bias = m.bias(bucket).permute(2, 0, 1)[None]
        for p in m.blocks:
            q, k, v = (heads(t, 8) for t in p["qkv"](p["norm"](x)).chunk(3, -1))
            x = x + p["out"](joined(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)))
            x = x + p["rest"](x)
        return x

    def one() -> nn.ModuleDict:
        qkv = nn.Linear(512, 1536, bias=False)
        qkv.weight.data *= 0.3
        rest = feed_forward(512, activation=nn.ReLU)
        return nn.ModuleDict({"norm": nn.RMSNorm(512), "qkv": qkv, "out": nn.Linear(512, 512), "rest": rest})

    blocks = nn.ModuleList(one() for _ in range(2))
    return block(forward, (torch.randn(1, 256, 512),), bias=nn.Embedding(32, 8), blocks=blocks)


def disentangled() -> Block:
    """DeBERTa: scores of content with content, content with place, and place with content, by gather."""

    def forward(m: Any, x: Tensor) -> Tensor:
        n = x.shape[1]
        q, k, v = (heads(t, 6) for t in m.qkv(x).chunk(3, -1))
        pk, pq = heads(m.k(m.places), 6), heads(m.q(m.places), 6)
        at = torch.arange(n)
        place = (at[:, None] - at[None]).clamp(-64, 63) + 64
        index = place.expand(*q.shape[:2], n, n)
        score = q @ k.transpose(-1, -2)
        score = score + (q @ pk.transpose(-1, -2)).gather(-1, index)
        score = score + (k @ pq.transpose(-1, -2)).gather(-1, index).transpose(-1, -2)
        return m.out(joined((score / math.sqrt(3 * 64)).softmax(-1) @ v))

    linears = {"qkv": nn.Linear(384, 1152), "q": nn.Linear(384, 384), "k": nn.Linear(384, 384)}
    rest = {"out": nn.Linear(384, 384), "places": torch.randn(128, 384)}
    return block(forward, (torch.randn(1, 256, 384),), **linears, **rest)


def shifted_windows() -> Block:
    """Swin: windows of 7 x 7, rolled by 3, with a mask where what was apart meets."""

    def forward(m: Any, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        y = torch.roll(m.norm(x), (-3, -3), (1, 2)).view(b, h // 7, 7, w // 7, 7, c)
        y = y.transpose(2, 3).reshape(-1, 49, c)
        q, k, v = (heads(t, 6) for t in m.qkv(y).chunk(3, -1))
        mask = m.bias + m.mask.repeat(b, 1, 1)[:, None]
        y = m.out(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))
        y = y.view(b, h // 7, w // 7, 7, 7, c).transpose(2, 3).reshape(b, h, w, c)
        x = x + torch.roll(y, (3, 3), (1, 2))
        return x + m.rest(x)

    part = torch.zeros(28)
    part[-7:-3], part[-3:] = 1, 2
    grid = (part[:, None] * 3 + part[None]).view(4, 7, 4, 7).transpose(1, 2).reshape(16, 49)
    mask = torch.zeros(16, 49, 49).masked_fill(grid[:, :, None] != grid[:, None], -100.0)
    linears = {"norm": nn.LayerNorm(192), "qkv": nn.Linear(192, 576), "out": nn.Linear(192, 192)}
    rest = {"rest": feed_forward(192), "bias": torch.randn(6, 49, 49), "mask": mask}
    return block(forward, (torch.randn(1, 28, 28, 192),), **linears, **rest)


def detr_decoder() -> Block:
    """100 queries look at each other and at 20 x 20 places of an image."""
    layer = nn.TransformerDecoderLayer(256, 8, 1024, batch_first=True)
    inputs = (torch.randn(1, 100, 256), torch.randn(1, 400, 256))
    return block(lambda m, q, image: m.layers(q, image), inputs, layers=nn.TransformerDecoder(layer, 2))


def perceiver() -> Block:
    """64 latent vectors read 4096 inputs, then each other."""

    def forward(m: Any, x: Tensor) -> Tensor:
        z = m.latent[None]
        k, v = m.kv(m.norm(x)).chunk(2, -1)
        z = z + m.out(joined(F.scaled_dot_product_attention(heads(m.q(z), 1), heads(k, 1), heads(v, 1))))
        z = z + m.rest(z)
        return m.layers(z)

    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=True)
    own = {"norm": nn.LayerNorm(64), "kv": nn.Linear(64, 512), "q": nn.Linear(256, 256), "out": nn.Linear(256, 256)}
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    rest = {"rest": feed_forward(256), "latent": torch.randn(64, 256), "layers": layers}
    return block(forward, (torch.randn(1, 4096, 64),), **own, **rest)
