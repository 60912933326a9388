"""Steps in order: recurrent layers, linear attention, the best path."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from block import Block, block, heads, joined
from torch import Tensor, nn


def _recurrent(kind: Any, batch: int, both: bool = False) -> Block:
    layers = kind(256, 256, 2, batch_first=True, bidirectional=both)
    return block(lambda m, x: m.layers(x)[0], (torch.randn(batch, 128, 256),), layers=layers)


def lstm() -> Block:
    return _recurrent(nn.LSTM, 1)


def lstm_batch() -> Block:
    return _recurrent(nn.LSTM, 16)


def lstm_both_ways() -> Block:
    return _recurrent(nn.LSTM, 1, both=True)


def gru() -> Block:
    return _recurrent(nn.GRU, 1)


def gru_batch() -> Block:
    return _recurrent(nn.GRU, 16)


def linear_attention() -> Block:
    """Causal linear attention in chunks of 64: a state of keys times values goes from chunk to chunk."""

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = (heads(t, 8).unflatten(2, (-1, 64)) for t in m.qkv(x).chunk(3, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        within = torch.tril(q @ k.transpose(-1, -2)) @ v
        states = (k.transpose(-1, -2) @ v).cumsum(2)
        before = F.pad(states[:, :, :-1], (0, 0, 0, 0, 1, 0))
        return m.out(joined((within + q @ before).flatten(2, 3)))

    return block(forward, (torch.randn(1, 1024, 512),), qkv=nn.Linear(512, 1536), out=nn.Linear(512, 512))


def rwkv() -> Block:
    """Time mixing of RWKV: an exponential decay for each channel, step by step in a loop."""

    def forward(m: Any, x: Tensor) -> Tensor:
        last = F.pad(x, (0, 0, 1, -1))
        mixed = x * m.mix + last * (1 - m.mix)
        k, v, r = m.k(mixed), m.v(mixed), torch.sigmoid(m.r(mixed))
        top = total = torch.zeros_like(k[:, 0])
        out = []
        for t in range(x.shape[1]):
            e = torch.exp(k[:, t])
            out.append((top + torch.exp(m.first) * e * v[:, t]) / (total + torch.exp(m.first) * e))
            top, total = m.decay * top + e * v[:, t], m.decay * total + e
        return m.o(r * torch.stack(out, 1))

    linears = {n: nn.Linear(256, 256, bias=False) for n in "kvro"}
    own = {"mix": torch.rand(256), "first": torch.randn(256), "decay": torch.rand(256)}
    return block(forward, (torch.randn(1, 64, 256),), **linears, **own)


def viterbi() -> Block:
    """The best path through 48 tags, 64 steps: the largest of sums, and the way back."""

    def forward(m: Any, scores: Tensor) -> Tensor:
        best, came = scores[:, 0], []
        for t in range(1, scores.shape[1]):
            most, place = (best[:, :, None] + m.steps).max(1)
            best = most + scores[:, t]
            came.append(place)
        tag = best.argmax(-1)
        path = [tag]
        for place in reversed(came):
            tag = place.gather(1, tag[:, None]).squeeze(1)
            path.append(tag)
        return torch.stack(path[::-1], 1)

    return block(forward, (torch.randn(4, 64, 48),), steps=torch.randn(48, 48))


def selective_scan() -> Block:
    """Mamba: a short convolution, then a state of 8 per channel whose decay and input the token chooses; 64 steps."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y, gate = m.wide(x).chunk(2, -1)
        y = F.silu(m.short(y.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, into, out_of = m.choose(y).split((8, 8, 8), -1)
        step = F.softplus(m.step(step))
        decay = torch.exp(step[..., None] * m.rates)
        new = (step * y)[..., None] * into[:, :, None]
        state, found = torch.zeros_like(new[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + new[:, t]
            found.append((state * out_of[:, t, None]).sum(-1))
        return m.narrow((torch.stack(found, 1) + y * m.skip) * F.silu(gate))

    linears = {"wide": nn.Linear(128, 512, bias=False), "choose": nn.Linear(256, 24, bias=False)}
    linears |= {"step": nn.Linear(8, 256), "narrow": nn.Linear(256, 128, bias=False)}
    own = {
        "short": nn.Conv1d(256, 256, 4, padding=3, groups=256),
        "rates": -torch.rand(256, 8),
        "skip": torch.ones(256),
    }
    return block(forward, (torch.randn(1, 64, 128),), **linears, **own)


def retention() -> Block:
    """RetNet in its parallel form: scores times a decay of the distance, a norm of each head, a gate."""

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = (heads(t, 4) for t in m.qkv(x).chunk(3, -1))
        at = torch.arange(x.shape[1])
        far = (at[:, None] - at[None]).float()
        decay = torch.where(far >= 0, m.rates[:, None, None] ** far.clamp(min=0), 0.0)
        y = (q @ k.transpose(-1, -2) / 8 * decay) @ v
        y = joined(F.layer_norm(y, y.shape[-1:]))
        return m.out(F.silu(m.gate(x)) * y)

    linears = {"qkv": nn.Linear(256, 768), "gate": nn.Linear(256, 256), "out": nn.Linear(256, 256)}
    rates = 1 - 2.0 ** (-5 - torch.arange(4.0))
    return block(forward, (torch.randn(1, 256, 256),), **linears, rates=rates)
