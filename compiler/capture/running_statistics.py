"""Running statistics of normalisations, which torch's schemas do not declare as written.

   y = instance_norm(x, w, b, mean, var, True, m, eps)
-> y = instance_norm(x, w, b, None, None, True, m, eps)
   mean' = (1 - m) mean + m average(means of the images)
   var'  = (1 - m) var  + m average(unbiased variances of the images)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.nn.modules import batchnorm

from .traced import traced

__all__ = ["batch_norm", "counted_averages", "instance_statistics"]

aten = torch.ops.aten


@contextmanager
def counted_averages() -> Iterator[None]:
    """While it lasts, the modules of batch norm leave the number of calls, of which momentum=None makes an average,
    symbolic."""
    space = vars(batchnorm)
    space["float"] = lambda x: torch.sym_float(x.item()) if isinstance(x, Tensor) else float(x)
    try:
        yield
    finally:
        del space["float"]


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """F.batch_norm; also of a cumulative average (momentum=None of the module), whose momentum is a number that the
    run computes: torch's own asks for its value."""
    counted = isinstance(momentum, torch.SymFloat)
    if not (counted and training and running_mean is not None and running_var is not None):
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, 0.0 if counted else momentum, eps)
    mean, variance = _blended(x, running_mean, running_var, momentum, [0, *range(2, x.dim())])
    y = F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    running_mean.copy_(mean)
    running_var.copy_(variance)
    return y


def instance_statistics(node: fx.Node) -> fx.GraphModule:
    """What aten.instance_norm with use_input_stats writes to its statistics: a graph of (x, mean, var)."""
    places = [node.args[0], node.args[3], node.args[4]]
    values = [place.meta["val"] for place in places]  # type: ignore[union-attr]
    momentum = node.args[6]

    def body(x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        return _blended(x, mean, var, momentum, list(range(2, x.dim())))

    return traced(node, body, values)


def _blended(x: Tensor, mean: Tensor, var: Tensor, momentum: Any, dims: list[int]) -> tuple[Tensor, Tensor]:
    """The statistics after a call: x [n, c, ...] in any float dtype, those of `dims`, averaged over what is left."""
    variance, average = torch.var_mean(x.to(torch.promote_types(x.dtype, torch.float32)), dims, correction=1)
    if average.dim() == 2:
        variance, average = variance.mean(0), average.mean(0)
    new = [old * (1 - momentum) + now * momentum for old, now in ((mean, average), (var, variance))]
    return new[0].to(mean.dtype), new[1].to(var.dtype)
