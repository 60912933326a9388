"""Functions whose results depend on dynamic sizes: a row each with the dimensions of its inputs and sizes to run at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

B, S, N, M = Dim("b", min=1, max=16), Dim("s", min=1, max=40), Dim("n", min=1, max=30), Dim("m", min=1, max=30)
HALF = Dim("half", min=1, max=20)
#: torch.export takes sizes of 0 and 1 for constants, so that these start at 2
TWO = Dim("two", min=2, max=30)
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """`shapes` of the inputs: numbers, or sizes whose values `at` gives for each run, by name."""

    name: str
    function: Callable[..., Any]
    shapes: Sequence[Sequence[Any]]
    at: Sequence[Mapping[str, int]]

    def dynamic_shapes(self) -> Any:
        return (tuple({d: n for d, n in enumerate(shape) if not isinstance(n, int)} for shape in self.shapes),)

    def inputs(self, sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(sum(sizes.values()))
        shapes = [[_value(n, sizes) for n in shape] for shape in self.shapes]
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    def module(self) -> nn.Module:
        return Function(self.function)


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _value(n: Any, sizes: Mapping[str, int]) -> int:
    if isinstance(n, int):
        return n
    if hasattr(n, "root"):  # a size made of another one
        return int(n.fn(sizes[n.root.__name__]))
    return sizes[n.__name__]


def causal(x: torch.Tensor) -> torch.Tensor:
    length = x.shape[1]
    scores = x @ x.mT
    mask = torch.ones(length, length).tril().bool()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ x


def windowed(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[1])
    near = (places[:, None] - places[None, :]).abs() < 3
    return torch.where(near, x @ x.mT, 0.0)


def padded_mask(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    kept = torch.arange(x.shape[1])[None, :] < lengths.abs()[:, None] * 4
    return (x * kept[..., None]).sum(1) / kept.sum(1, keepdim=True).clamp(min=1)


def halves_of_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first, second = torch.cat([x * 2, y]).chunk(2)  # two halves because both have one size
    return first * second


def positions(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[1], dtype=torch.float32)
    angles = places[:, None] * torch.arange(0, 8, 2) / x.shape[1]
    return x + torch.cat((angles.sin(), angles.cos()), -1)


def constants(x: torch.Tensor) -> Any:
    b, s = x.shape
    return x / s + b, torch.full((b, 2), 1.5) * s, x * s**-0.5, torch.zeros(s, b) + s * b - 1


def grouped(x: torch.Tensor) -> torch.Tensor:
    b, s, _ = x.shape
    return x.reshape(b * s, 8).reshape(b, s, 2, 4).transpose(1, 2).reshape(b, -1, 4)


def joined(x: torch.Tensor, y: torch.Tensor) -> Any:
    both = torch.cat((x, y), 0)
    return both @ both.T, both.sum(), both.reshape(-1, 2), torch.arange(both.shape[0])


def steps(x: torch.Tensor) -> Any:
    n = x.shape[0]
    rows = (
        torch.linspace(-1, 1, n),
        torch.linspace(0.5, n - 0.5, n),
        torch.linspace(3, 0, 2 * n + 1, dtype=torch.float64),
    )
    return *rows, torch.logspace(0, 1, n, base=2), torch.linspace(0, n - 1, 5), torch.arange(n - 1, -1, -2)


def sliced(x: torch.Tensor) -> Any:
    s = x.shape[1]
    return x[:, -1], x[:, : s // 2], x[:, s // 2 :], x[:, ::2].sum(1), x[:, s - 1], x.flip(1)[:, :1]


def from_end(x: torch.Tensor) -> Any:
    """Places that are computed and negative: of rows, slices, writes and known values; the last one at some sizes."""
    n, m = x.shape
    y = x.clone()
    y[-(n // 2) :, -min(m, 2)] = 1.5
    y[-n] += 1
    y[n // 2 : n // 3] = 2.5  # nothing
    known = torch.arange(3 * n).reshape(n, 3)[-(n // 2), 0]
    return x[n // 3 : n - n // 3, -min(m, 3) :], x[-(n // 2)], x[:, -min(m, 3) : -1], y, x + known, x[1 - n // 4]


def transformed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One length of two inputs, which an operator compares with a number."""
    return torch.fft.ifft(torch.complex(y, y), dim=0).real + x


def pairs(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return x.reshape(n // 2, 2, 3).sum(1), x[0::2] - x[1::2], x.unflatten(0, (-1, 2)).amax(1)


def pictures(x: torch.Tensor) -> Any:
    half = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
    return half, F.interpolate(x, scale_factor=2, mode="nearest"), F.adaptive_avg_pool2d(x, 1), x.flatten(1).mean(1)


def sequences(x: torch.Tensor) -> torch.Tensor:
    kernel = torch.arange(12, dtype=torch.float32).reshape(2, 2, 3) / 10
    return F.conv1d(F.pad(x, (2, 0)), kernel, stride=2)


def fractions(x: torch.Tensor) -> Any:
    """Sizes by floating-point numbers, which are formulas of whole numbers."""
    n = x.shape[1]
    whole = F.pad(x, (0, 0, 0, math.ceil(n / 4) * 4 - n))
    return x[:, : int(n * 0.6) + 1], x[:, int(n / 2) :], whole.reshape(x.shape[0], -1, 4, 3), x[:, : round(n * 0.5) + 1]


def resized(x: torch.Tensor) -> Any:
    return (
        F.interpolate(x, scale_factor=1.5, mode="bicubic"),
        F.interpolate(x, scale_factor=(1.5, 2.0), mode="bilinear", align_corners=True),
        F.interpolate(x, scale_factor=0.6, mode="area"),
        F.interpolate(x[:, 0], scale_factor=1.7, mode="linear", recompute_scale_factor=True),
        F.interpolate(x, size=(3, 5), mode="nearest-exact"),
    )


def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, k)


ROWS = (
    Row("ranges", lambda x: torch.relu(x) + 1, [(B, S)], [{"b": 1, "s": 1}, {"b": 16, "s": 40}, {"b": 3, "s": 17}]),
    Row("equal", lambda x, y: x * y + y.sum(), [(N, 3), (N, 3)], [{"n": 1}, {"n": 30}]),
    Row("halves of two", halves_of_two, [(N, 3), (N, 3)], [{"n": 1}, {"n": 30}]),
    Row("outer", lambda x, y: x[:, None] * y, [(N,), (M,)], [{"n": 1, "m": 1}, {"n": 7, "m": 30}, {"n": 5, "m": 5}]),
    Row("multiples", pairs, [(2 * HALF, 3)], [{"half": 1}, {"half": 20}]),
    Row("one more", lambda x, y: x * y[1:] - y[:-1], [(TWO, 3), (TWO + 1, 3)], [{"two": 2}, {"two": 30}]),
    Row("sums", joined, [(N, 4), (M, 4)], [{"n": 1, "m": 1}, {"n": 9, "m": 30}]),
    Row("constants", constants, [(B, S)], [{"b": 1, "s": 1}, {"b": 16, "s": 40}]),
    Row("positions", positions, [(B, S, 8)], [{"b": 1, "s": 1}, {"b": 2, "s": 33}]),
    Row("reshapes", grouped, [(B, TWO, 8)], [{"b": 1, "two": 2}, {"b": 5, "two": 7}]),
    Row("steps", steps, [(N,)], [{"n": 1}, {"n": 2}, {"n": 7}, {"n": 30}]),
    Row("slices", sliced, [(B, S, 3)], [{"b": 1, "s": 1}, {"b": 2, "s": 2}, {"b": 3, "s": 31}]),
    Row(
        "from the end",
        from_end,
        [(TWO, 2 * HALF)],
        [{"two": 2, "half": 1}, {"two": 3, "half": 2}, {"two": 30, "half": 20}],
    ),
    Row("transformed", transformed, [(N, 4), (N, 4)], [{"n": 1}, {"n": 4}, {"n": 30}]),
    Row("causal", causal, [(B, S, 4)], [{"b": 1, "s": 1}, {"b": 3, "s": 37}]),
    Row("windowed", windowed, [(B, S, 4)], [{"b": 1, "s": 1}, {"b": 3, "s": 37}]),
    Row("lengths", padded_mask, [(B, S, 4), (B,)], [{"b": 1, "s": 1}, {"b": 9, "s": 20}]),
    Row("pictures", pictures, [(B, 2, TWO, S)], [{"b": 1, "two": 2, "s": 1}, {"b": 2, "two": 9, "s": 12}]),
    Row("fractions", fractions, [(B, S, 3)], [{"b": 1, "s": 1}, {"b": 2, "s": 40}, {"b": 3, "s": 17}]),
    Row("resized", resized, [(B, 2, TWO, TWO + 1)], [{"b": 1, "two": 2}, {"b": 2, "two": 30}, {"b": 3, "two": 7}]),
    Row("sequences", sequences, [(B, 2, S)], [{"b": 1, "s": 1}, {"b": 2, "s": 40}, {"b": 2, "s": 39}]),
    Row("cross", attention, [(B, 2, S, 8), (B, 2, N, 8)], [{"b": 1, "s": 1, "n": 1}, {"b": 2, "s": 9, "n": 30}]),
)
