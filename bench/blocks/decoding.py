"""A token at a time: attention over what was seen before."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from block import Block, block, feed_forward, heads, joined
from torch import Tensor, nn


def gpt_step() -> Block:
    """A new token for each of 4 texts, 512 seen before; 2 layers."""

    def forward(m: Any, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        seen = []
        for i, p in enumerate(m.blocks):
            q, k, v = (heads(t, 12) for t in p["qkv"](p["norm"](x)).chunk(3, -1))
            k, v = torch.cat((keys[i], k), 2), torch.cat((values[i], v), 2)
            x = x + p["out"](joined(F.scaled_dot_product_attention(q, k, v)))
            x = x + p["rest"](x)
            seen += [k, v]
        return x, *seen

    def one() -> nn.ModuleDict:
        parts = {"norm": nn.LayerNorm(768), "qkv": nn.Linear(768, 2304), "out": nn.Linear(768, 768)}
        return nn.ModuleDict({**parts, "rest": feed_forward(768)})

    caches = (torch.randn(2, 4, 12, 512, 64), torch.randn(2, 4, 12, 512, 64))
    return block(forward, (torch.randn(4, 1, 768), *caches), blocks=nn.ModuleList(one() for _ in range(2)))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def sliding_cache() -> Block:
    """Mistral: rotary places, 8 heads that share 2 of keys, the last 256 of the cache, a gated feed forward."""

    def forward(m: Any, x: Tensor, keys: Tensor, values: Tensor, place: Tensor) -> tuple[Tensor, ...]:
        angles = place[:, None] * m.rates
        cos, sin = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))
        y = m.norm(x)
        q, k, v = heads(m.q(y), 8), heads(m.k(y), 2), heads(m.v(y), 2)
        keys = torch.cat((keys[:, :, 1:], _turned(k, cos, sin)), 2)
        values = torch.cat((values[:, :, 1:], v), 2)
        y = F.scaled_dot_product_attention(_turned(q, cos, sin), keys, values, enable_gqa=True)
        x = x + m.o(joined(y))
        y = m.norm2(x)
        return x + m.down(F.silu(m.gate(y)) * m.up(y)), keys, values

    sizes = {"q": (512, 512), "k": (512, 128), "v": (512, 128), "o": (512, 512)}
    sizes |= {"gate": (512, 1408), "up": (512, 1408), "down": (1408, 512)}
    linears = {n: nn.Linear(*s, bias=False) for n, s in sizes.items()}
    rest = {"norm": nn.RMSNorm(512), "norm2": nn.RMSNorm(512), "rates": 10000.0 ** (-torch.arange(32) / 32)}
    caches = (torch.randn(1, 2, 256, 64), torch.randn(1, 2, 256, 64))
    return block(forward, (torch.randn(1, 1, 512), *caches, torch.tensor([700.0])), **linears, **rest)


def paged_step() -> Block:
    """A new token for each of 8 texts, 1024 seen before, whose keys and values lie in blocks of a cache."""

    def seen(memory: Tensor, table: Tensor) -> Tensor:
        return memory[table].transpose(1, 2).flatten(2, 3)

    def forward(m: Any, x: Tensor, keys: Tensor, values: Tensor, table: Tensor) -> Tensor:
        q = heads(m.q(m.norm(x)), 12)
        y = F.scaled_dot_product_attention(q, seen(keys, table), seen(values, table), enable_gqa=True)
        return x + m.out(joined(y))

    cache = (torch.randn(520, 4, 16, 64), torch.randn(520, 4, 16, 64))
    table = torch.randperm(520)[:512].reshape(8, 64)
    parts = {"norm": nn.RMSNorm(768), "q": nn.Linear(768, 768), "out": nn.Linear(768, 768)}
    return block(forward, (torch.randn(8, 1, 768), *cache, table), **parts)


def gated_step() -> Block:
    """The gated feed forward of a token."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.norm(x)
        return x + m.down(F.silu(m.gate(y)) * m.up(y))

    sizes = {"gate": (768, 2048), "up": (768, 2048), "down": (2048, 768)}
    linears = {n: nn.Linear(*s, bias=False) for n, s in sizes.items()}
    return block(forward, (torch.randn(1, 1, 768),), norm=nn.RMSNorm(768), **linears)
