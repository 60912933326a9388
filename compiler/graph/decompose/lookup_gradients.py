"""Gradients of operators that look elements up: bags of rows, samples of images, masks, pairs of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .definitions import definition
from .grid_sample import grid_sampler
from .layers import bags_of
from .linear_gradients import cdist_backward

aten = torch.ops.aten
SUM, MEAN, MAX = range(3)


@definition("aten._embedding_bag_backward")
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Of the table. torch leaves offset2bag empty where its own kernel needs none."""
    if mode == MAX:
        own = torch.where((bag_size > 0).unsqueeze(1), grad, 0.0)
        return torch.zeros([num_weights, grad.shape[1]], dtype=grad.dtype).scatter_add(
            0, maximum_indices.to(torch.int64), own
        )
    bag = bags_of(indices, offsets, grad.shape[0])
    rows = grad.index_select(0, bag)
    if mode == MEAN:
        rows = rows / bag_size.index_select(0, bag).clamp(min=1).unsqueeze(1).to(rows.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if padding_idx >= 0:
        rows = torch.where((indices == padding_idx).unsqueeze(1), 0.0, rows)
    if scale_grad_by_freq:
        count = torch.zeros([num_weights], dtype=rows.dtype).index_add(
            0, indices, torch.ones(indices.shape, dtype=rows.dtype)
        )
        rows = rows / count.index_select(0, indices).unsqueeze(1)
    return torch.zeros([num_weights, grad.shape[1]], dtype=grad.dtype).index_add(0, indices, rows)


@definition("aten._embedding_bag_per_sample_weights_backward")
def embedding_bag_per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """Of the weights of a sum: the product of the row and its bag's gradient."""
    rows = weight.index_select(0, indices) * grad.index_select(0, bags_of(indices, offsets, grad.shape[0]))
    found = rows.sum(1)
    return torch.where(indices == padding_idx, 0.0, found) if padding_idx >= 0 else found


@definition("aten.masked_scatter_backward")
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Tensor:
    """Of the source: the gradients at the mask, in order, then zeros."""
    count = math.prod(sizes)
    chosen = mask.expand(grad.shape).reshape([-1])
    place = torch.where(chosen, chosen.to(torch.int64).cumsum(0) - 1, count)
    found = grad.new_zeros([count + 1]).index_add(0, place, torch.where(chosen, grad.reshape([-1]), 0.0))
    return found.narrow(0, 0, count).reshape(list(sizes))


@definition("aten._pdist_backward")
def pdist_backward(grad: Tensor, x: Tensor, p: float, distances: Tensor) -> Tensor:
    """That of all distances, each pair at both of its places."""
    n = x.shape[0]
    first, second = torch.triu_indices(n, n, 1)

    def both(values: Tensor) -> Tensor:
        half = values.new_zeros([n * n]).index_add(0, first * n + second, values).reshape([n, n])
        return half + half.t()

    return cdist_backward(both(grad), x, x, p, both(distances))


@definition("aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward")
def grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool, output_mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The derivative of the definition of the samples."""
    pulled: Any = torch.func.vjp(lambda a, b: grid_sampler(a, b, mode, padding, align), x, grid)
    of_x, of_grid = pulled[1](grad)
    return of_x, of_grid


@definition("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, total: Tensor
) -> Tensor:
    """Made by comparing each class with the target, where torch's own scatters into zeros: a comparison and a choice,
    which whatever reads it makes again."""
    channel = 0 if x.dim() < 2 else 1
    grad = grad / total if reduction == 1 else grad
    if x.dim() == 1 and target.dim() > 0:
        target = target[0]
    target = target.unsqueeze(channel)
    if x.dim() > grad.dim() > 0:
        grad = grad.unsqueeze(channel)
    own = -grad if ignore_index < 0 else torch.where(target != ignore_index, -grad, 0.0)  # no class is below 0
    shape = [x.shape[d] if d == channel else 1 for d in range(x.dim())]
    if weight is not None:
        own = own * weight.reshape(shape)
    return torch.where(torch.arange(x.shape[channel], device=x.device).reshape(shape) == target, own, 0.0)
