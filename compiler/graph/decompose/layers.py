"""Layers and distances in terms of gathers, products and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...model.operators import own
from ...model.operators.trained_attention import attention_scale
from .basic import vector_norm
from .definitions import definition, widened

aten = torch.ops.aten


@definition("aten._cdist_forward")
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    if a.shape[-1] == 0:
        return a.new_zeros([*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]])
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == math.inf:  # torch passes NaN over
        difference = torch.where(difference != difference, 0.0, difference)
    return _distance(difference, p)


def _distance(difference: Tensor, p: float) -> Tensor:
    """The norm over the last dimension; of order 0 it counts differences, and is NaN where one is."""
    if p == 0:
        return difference.abs().ceil().clamp_max(1).sum(-1)
    return vector_norm(difference, p, [-1])


@definition("aten._pdist_forward")
def pdist(x: Tensor, p: float = 2) -> Tensor:
    n = x.shape[0]
    if n < 2 or x.shape[1] == 0:
        return x.new_zeros([max(n * (n - 1) // 2, 0)])
    rows = [i for i in range(n) for _ in range(i + 1, n)]
    columns = [j for i in range(n) for j in range(i + 1, n)]
    return _distance(x[torch.tensor(rows)] - x[torch.tensor(columns)], p)


@definition("aten._trilinear")
def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    operands, dtype = [], a.dtype
    for t, dims in zip(widened(a, b, c), (expand1, expand2, expand3), strict=True):
        for d in sorted(dims):
            t = t.unsqueeze(d)
        operands.append(t)
    return (operands[0] * operands[1] * operands[2]).sum(list(sumdim)).to(dtype)


@definition("aten.bilinear")
def bilinear(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[.., o] = sum over i and j of a[.., i] weight[o, i, j] b[.., j]: a product over i, a sum over j."""
    dtype = a.dtype
    a, b, weight, bias = widened(a, b, weight, bias)
    outputs, inner, last = weight.shape
    left = torch.matmul(a, weight.movedim(1, 0).reshape([inner, outputs * last]))
    y = (left.reshape([*a.shape[:-1], outputs, last]) * b.unsqueeze(-2)).sum(-1)
    return (y if bias is None else y + bias).to(dtype)


@definition("aten.native_group_norm")
def native_group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, area: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = x.dtype
    x, weight, bias = widened(x, weight, bias)
    grouped = x.reshape([n, group, -1]) if x.numel() else x.reshape([n, group, c // group * area])
    variance, mean = torch.var_mean(grouped, [2], correction=0, keepdim=True)
    root = torch.rsqrt(variance + eps)
    y = ((grouped - mean) * root).reshape(x.shape)
    column = [1, c, *[1] * (x.dim() - 2)]
    y = y if weight is None else y * weight.reshape(column)
    y = y if bias is None else y + bias.reshape(column)
    return y.to(dtype), mean.squeeze(2).to(dtype), root.squeeze(2).to(dtype)


@definition("aten.embedding_renorm")
def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that are looked up and longer than max_norm get that length."""
    norm = vector_norm(weight, norm_type, [1]).unsqueeze(1)
    used = aten.index_fill.int_Scalar(torch.zeros([weight.shape[0]], dtype=torch.bool), 0, indices.reshape([-1]), True)
    return torch.where(used.unsqueeze(1) & (norm > max_norm), weight * (max_norm / (norm + 1e-7)), weight)


def bags_of(indices: Tensor, offsets: Tensor, bags: int | torch.SymInt) -> Tensor:
    """The bag of each index; bag b has those from offsets[b] on."""
    place = torch.arange(indices.shape[0]).to(offsets.dtype)
    return (offsets[:bags] <= place.unsqueeze(1)).to(torch.int64).sum(1) - 1


@definition("aten._embedding_bag_forward_only", "aten._embedding_bag")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums (0), means (1) or maxima (2) of bags of rows; bag b has the indices from offsets[b] on."""
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    bag = bags_of(indices, offsets, bags)
    dtype = weight.dtype
    rows, per_sample_weights = widened(weight.index_select(0, indices.to(torch.int64)), per_sample_weights)
    counted = torch.ones_like(bag) if padding_idx < 0 else (indices != padding_idx).to(torch.int64)
    sizes = aten.index_add.default(torch.zeros([bags], dtype=torch.int64), 0, bag, counted)
    kept = (counted != 0).unsqueeze(1)
    if mode == 2:
        low = torch.where(kept, rows, torch.full_like(rows, -torch.inf))
        start = rows.new_full([bags, weight.shape[1]], -torch.inf)
        out = aten.index_reduce.default(start, 0, bag, low, "amax")
        out = torch.where(sizes.unsqueeze(1) == 0, torch.zeros_like(out), out)
        largest = _first_of_bags(low, out, bag, indices)
    else:
        largest = sizes
        rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(1)
        rows = torch.where(kept, rows, torch.zeros_like(rows))
        out = aten.index_add.default(rows.new_zeros([bags, weight.shape[1]]), 0, bag, rows)
        out = out if mode == 0 else out / sizes.clamp_min(1).unsqueeze(1)
    if mode == 0 and padding_idx < 0 and weight.stride(1) == 1:  # torch's own kernel needs none
        bag = bag[:0]
    return out.to(dtype), bag.to(indices.dtype), sizes.to(indices.dtype), largest.to(indices.dtype)


def _first_of_bags(rows: Tensor, out: Tensor, bag: Tensor, indices: Tensor) -> Tensor:
    """Of each bag and column, the index whose row is the largest, the first of equal ones; 0 of an empty bag."""
    count = rows.shape[0]
    place = torch.arange(count).unsqueeze(1).expand(rows.shape)
    place = torch.where(rows == out.index_select(0, bag), place, count)
    first = aten.index_reduce.default(torch.full_like(out, count, dtype=torch.int64), 0, bag, place, "amin")
    return torch.where(
        first < count, indices.index_select(0, first.clamp(max=count - 1).reshape([-1])).reshape(out.shape), 0
    )


@definition("aten.segment_reduce")
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reductions of consecutive segments along `axis`; lengths (or offsets) may differ by the dimensions before it."""
    if offsets is None:
        assert lengths is not None
        ends = lengths.cumsum(axis)
        starts = ends - lengths
    else:
        starts, ends = (
            offsets.narrow(axis, 0, offsets.shape[axis] - 1),
            offsets.narrow(axis, 1, offsets.shape[axis] - 1),
        )
    place = torch.arange(data.shape[axis])
    member = (place >= starts.unsqueeze(-1)) & (place < ends.unsqueeze(-1))  # [.., segment, place]
    member = member.reshape([*member.shape, *[1] * (data.dim() - axis - 1)])
    wide = data.unsqueeze(axis)
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -torch.inf, "min": torch.inf}[reduce]
    terms = torch.where(member, wide, torch.full([], neutral, dtype=data.dtype))
    start = neutral if initial is None else initial
    if reduce == "prod":
        return terms.prod(axis + 1) * start
    if reduce in ("max", "min"):
        found = terms.amax(axis + 1) if reduce == "max" else terms.amin(axis + 1)
        return found.clamp_min(start) if reduce == "max" else found.clamp_max(start)
    total = terms.sum(axis + 1) + start
    if reduce == "sum":
        return total
    count = member.to(torch.int64).sum(axis + 1)
    mean = total / count
    return mean if initial is None else torch.where(count == 0, torch.full_like(mean, initial), mean)


definition("mycc.attention")(own.attention)
definition("mycc.softmax_values")(own.softmax_values)


@definition("aten.scaled_dot_product_attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """For types that the attention kernels do not take, and with dropout; a row without any key gives zeros."""
    if enable_gqa:
        repeats = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(repeats, -3), v.repeat_interleave(repeats, -3)
    dtype = q.dtype
    q, k, v = widened(q, k, v)
    factor = scale if scale is not None else attention_scale(q.shape[-1])
    scores = torch.matmul(q * factor, k.mT)
    if is_causal:
        attn_mask = torch.arange(k.shape[-2]) <= torch.arange(q.shape[-2]).unsqueeze(1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, torch.full([], -torch.inf, dtype=q.dtype))
    elif attn_mask is not None:
        scores = scores + attn_mask
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(torch.isfinite(top), top, torch.zeros_like(top)))
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, torch.ones_like(total), total)
    if dropout_p:
        weights = aten.dropout.default(weights, dropout_p, True)
    return torch.matmul(weights, v).to(dtype)
