"""Our own decompositions: operator name -> function of torch operators, for any sizes.

Only where torch has none, where torch's splits further than the lowering needs, or where ours gives fewer operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}


def _for(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            DECOMPOSITIONS[name] = function
        return function

    return add


@_for("aten.glu")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = x.chunk(2, dim)
    return a * torch.sigmoid(b)


@_for("aten.hardshrink")
def hardshrink(x: Tensor, bound: float = 0.5) -> Tensor:
    return torch.where((x >= -bound) & (x <= bound), 0.0, x)


@_for("aten.softshrink")
def softshrink(x: Tensor, bound: float = 0.5) -> Tensor:
    """x - bound above, x + bound below, 0 between; x * 0 keeps NaN."""
    return torch.where(x > bound, x - bound, torch.where(x < -bound, x + bound, x * 0))


@_for("aten.softsign")
def softsign(x: Tensor) -> Tensor:
    return x / (1 + x.abs())


@_for("aten.tanhshrink")
def tanhshrink(x: Tensor) -> Tensor:
    return x - torch.tanh(x)


@_for("aten.instance_norm")
def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """Statistics over the spatial dimensions of each image and channel; or those given."""
    column = [1, -1] + [1] * (x.dim() - 2)
    if use_input_stats:
        variance, average = torch.var_mean(x, list(range(2, x.dim())), correction=0, keepdim=True)
    else:
        assert mean is not None
        assert var is not None
        variance, average = var.reshape(column), mean.reshape(column)
    y = (x - average) * torch.rsqrt(variance + eps)
    if weight is not None:
        y = y * weight.reshape(column)
    return y if bias is None else y + bias.reshape(column)


@_for("aten.outer", "aten.ger")
def outer(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(1) * b


@_for("aten.dot", "aten.vdot")
def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


@_for("aten.mv")
def mv(a: Tensor, b: Tensor) -> Tensor:
    return aten.squeeze.dim(aten.mm.default(a, b.unsqueeze(1)), 1)


@_for("aten.addmv")
def addmv(c: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * c + alpha * mv(a, b)


@_for("aten.addbmm")
def addbmm(c: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * c + alpha * aten.bmm.default(a, b).sum(0)


@_for("aten.cosine_similarity")
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    size_a = (a * a).sum(dim, keepdim=True).sqrt().clamp_min(eps)
    size_b = (b * b).sum(dim, keepdim=True).sqrt().clamp_min(eps)
    return ((a / size_a) * (b / size_b)).sum(dim)


@_for("aten.linalg_vector_norm")
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    axes = list(range(x.dim())) if dim is None or not len(dim) else list(dim)
    if ord == math.inf:
        return x.abs().amax(axes, keepdim)
    if ord == -math.inf:
        return x.abs().amin(axes, keepdim)
    if ord == 0:
        return (x != 0).to(x.dtype).sum(axes, keepdim)
    if ord == 1:
        return x.abs().sum(axes, keepdim)
    if ord == 2:
        return (x * x).sum(axes, keepdim).sqrt()
    return x.abs().pow(ord).sum(axes, keepdim).pow(1.0 / ord)


@_for("aten.norm.ScalarOpt_dim", "aten.norm.Scalar")
def norm(x: Tensor, p: float | None = 2, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    return vector_norm(x, 2.0 if p is None else p, dim, keepdim)


@_for("aten.diff")
def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    x = torch.cat([t for t in (prepend, x, append) if t is not None], dim)
    for _ in range(n):
        size = x.shape[dim]
        ahead, behind = x.narrow(dim, 1, size - 1), x.narrow(dim, 0, size - 1)
        x = ahead ^ behind if x.dtype == torch.bool else ahead - behind
    return x


@_for("aten.adaptive_avg_pool1d")
def adaptive_avg_pool1d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    if output_size[0] == 1:
        return x.mean(-1, keepdim=True)
    return aten.squeeze.dim(aten._adaptive_avg_pool2d.default(x.unsqueeze(-2), [1, output_size[0]]), -2)


@_for("aten.pixel_unshuffle")
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    *lead, c, h, w = x.shape
    n = len(lead)
    split = x.reshape([*lead, c, h // factor, factor, w // factor, factor])
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return split.permute(order).reshape([*lead, c * factor * factor, h // factor, w // factor])


@_for("aten.channel_shuffle")
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    n, c, *space = x.shape
    return x.reshape([n, groups, c // groups, *space]).transpose(1, 2).reshape([n, c, *space])


@_for("aten.repeat_interleave.self_int")
def repeat_interleave(x: Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    if dim is None:
        x, dim = x.reshape([-1]), 0
    dim = dim % x.dim()
    shape = list(x.shape)
    wide = x.unsqueeze(dim + 1).expand([*shape[: dim + 1], repeats, *shape[dim + 1 :]])
    return wide.reshape([*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]])


@_for("aten.einsum")
def einsum(equation: str, operands: Sequence[Tensor], *, path: Any = None) -> Tensor:
    """Two operands as one batched matrix product; others as torch does it, two at a time."""
    text = equation.replace(" ", "")
    if len(operands) == 2 and "->" in text and "." not in text:
        left, right, result = text.replace("->", ",").split(",")
        if all(len(set(t)) == len(t) for t in (left, right, result)):
            product = _contraction(left, right, result, *operands)
            if product is not None:
                return product
    return aten.einsum.default.decompose(equation, operands, path=path)


def _contraction(left: str, right: str, result: str, a: Tensor, b: Tensor) -> Tensor | None:
    batch = [c for c in result if c in left and c in right]
    rows = [c for c in result if c in left and c not in right]
    columns = [c for c in result if c in right and c not in left]
    summed = [c for c in left if c in right and c not in result]
    if not summed or len(batch) + len(rows) + len(columns) != len(result):
        return None
    if set(left) - set(batch) - set(rows) - set(summed) or set(right) - set(batch) - set(columns) - set(summed):
        return None
    size = {**dict(zip(left, a.shape, strict=True)), **dict(zip(right, b.shape, strict=True))}
    a, b = _ordered(a, left, batch, rows, summed, size), _ordered(b, right, batch, summed, columns, size)
    out = torch.matmul(a, b) if a.dim() == 2 or b.dim() == 2 else _batched(a, b)
    have = [*batch, *rows, *columns]
    out = out.reshape([size[c] for c in have])
    return out.permute([have.index(c) for c in result])


def _ordered(x: Tensor, letters: str, batch: list[str], first: list[str], last: list[str], size: Any) -> Tensor:
    """x as [batch..., first, last] with the dimensions of each of the two merged into one."""
    order = [letters.index(c) for c in (*batch, *first, *last)]
    merged = [_count(first, size), _count(last, size)]
    return x.permute(order).reshape([*(size[c] for c in batch), *merged])


def _count(letters: Sequence[str], size: Any) -> Any:
    total: Any = 1
    for letter in letters:
        total = total * size[letter]
    return total


def _batched(a: Tensor, b: Tensor) -> Tensor:
    lead = a.shape[:-2]
    if len(lead) == 1:
        return aten.bmm.default(a, b)
    flat = [t.reshape([-1, *t.shape[-2:]]) for t in (a, b)]
    return aten.bmm.default(*flat).reshape([*lead, a.shape[-2], b.shape[-1]])
