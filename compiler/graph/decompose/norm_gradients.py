"""Gradients of batch norm, whose statistics are as exact as its sums."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._decomp.decompositions import native_batch_norm_backward as by_saved_statistics
from torch._prims_common import get_computation_dtype

from .definitions import definition


@definition("aten.native_batch_norm_backward")
def native_batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    root: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """By the statistics of x in float32 where those that the forward has saved are of 16 bits.

    torch's definition of the forward rounds them to the type of x on CPUs, which its kernels do not. Where the forward
    is a part of the graph, its statistics are the same nodes: nothing is computed twice.
    """
    compute = get_computation_dtype(x.dtype)
    if train and mean is not None and mean.dtype != compute:
        dims = [0, *range(2, x.dim())]
        variance, centre = torch.var_mean(x.to(compute), dims, correction=0, keepdim=True)
        mean, root = torch.squeeze(centre, dims), torch.squeeze(torch.rsqrt(variance + eps), dims)
    found: tuple[Tensor | None, Tensor | None, Tensor | None] = by_saved_statistics(
        grad, x, weight, running_mean, running_var, mean, root, train, eps, list(output_mask)
    )
    return found
