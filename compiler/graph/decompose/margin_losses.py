"""Margin losses. torch's own definitions take labels behind the end for label 0, and NaN where torch's kernels pass it
over: a margin counts where it is above 0."""

from __future__ import annotations

import torch
from torch import Tensor

from .definitions import definition, widened

_MEAN, _SUM = 1, 2  # torch's numbers of reductions


@definition("aten.multi_margin_loss")
def multi_margin_loss(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """max(0, margin - x[target] + x[i])^p of every other class i, by the number of classes."""
    dtype = x.dtype
    x, weight = widened(x, weight)
    rows, labels = torch.atleast_2d(x), torch.atleast_1d(target).unsqueeze(1)
    z = margin - rows.gather(1, labels) + rows
    counts = (z > 0) & (torch.arange(rows.shape[1], device=x.device) != labels)
    z = z if p == 1 else z * z
    z = z if weight is None else z * weight[labels]
    loss = torch.where(counts, z, 0.0).sum(1) / rows.shape[1]
    return _reduced(loss, reduction, target).to(dtype)


@definition("aten.multilabel_margin_loss")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    return _multilabel(x, target, reduction)[0]


@definition("aten.multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    return _multilabel(x, target, reduction)


def _multilabel(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """max(0, 1 - x[t] + x[i]) of labels t up to the first -1 and classes i that are no label; and the labels."""
    dtype = x.dtype
    (x,) = widened(x)
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = rows.shape[1]
    place = torch.arange(classes, device=x.device)
    end = torch.where(labels == -1, place, classes).amin(1, keepdim=True)
    counts = place < end
    own = rows.gather(1, torch.where(labels == -1, 0, labels))  # those behind the end are checked too
    chosen = (torch.where(counts, labels, -1).unsqueeze(2) == place).any(1)
    z = 1 - own.unsqueeze(2) + rows.unsqueeze(1)
    taken = (z > 0) & counts.unsqueeze(2) & ~chosen.unsqueeze(1)
    loss = torch.where(taken, z, 0.0).sum((1, 2)) / classes
    scalar = target.select(-1, 0) if target.dim() else target
    return _reduced(loss, reduction, scalar).to(dtype), chosen.to(dtype).reshape(target.shape)


def _reduced(loss: Tensor, reduction: int, like: Tensor) -> Tensor:
    """`like`: of the shape of the losses that are not reduced."""
    if reduction == _MEAN:
        return loss.mean()
    return loss.sum() if reduction == _SUM else loss.reshape(like.shape)
