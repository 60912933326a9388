"""Gradients of pools, where each input element gathers from the windows that it lies in: no two add to one place."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .definitions import definition

aten = torch.ops.aten


def _of_both(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Registers a function as the decomposition of a pool's gradient over images and over volumes, whose number of
    dimensions is its first argument. name: with {} for it."""

    def add(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        for count in (2, 3):
            definition(name.format(count))(functools.partial(function, count))
        return function

    return add


def _each(value: Sequence[int], count: int) -> list[int]:
    return list(value) * count if len(value) == 1 else list(value)


def _along(places: Tensor, dim: int, count: int) -> Tensor:
    """A row of numbers for the given one of the last dimensions."""
    return places.reshape([-1 if d == dim else 1 for d in range(count)])


def _windows(size: Any, outputs: Any, kernel: int, stride: int, padding: int, dilation: int) -> list[tuple[Any, Any]]:
    """Along one dimension: (which window, whether it holds the element), as rows over the elements, for each of the
    windows that an element may lie in."""
    at = torch.arange(size) + padding
    found = []
    if dilation == 1:  # the last window that starts before the element, and those before it
        last = torch.div(at, stride, rounding_mode="floor")
        for back in range((kernel - 1) // stride + 1):
            window = last - back
            found.append((window, window * stride + kernel > at))
    else:
        for tap in range(kernel):
            start = at - tap * dilation
            found.append((torch.div(start, stride, rounding_mode="floor"), start % stride == 0))
    return [(w.clamp(0, outputs - 1), held & (w >= 0) & (w < outputs)) for w, held in found]


def _gathered(x: Tensor, windows: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """x at one window for each element: the last dimensions in turn."""
    first = x.dim() - len(windows)
    for d, (window, _) in enumerate(windows):
        x = x.index_select(first + d, window)
    return x


def _held(windows: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    found = None
    for d, (_, held) in enumerate(windows):
        own = _along(held, d, len(windows))
        found = own if found is None else found & own
    assert found is not None
    return found


# maxima --------------------------------------------------------------------------------------------------------------
@_of_both("aten.max_pool{}d_with_indices_backward")
def max_pool_backward(
    count: int,
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """An element gets the gradients of the windows whose maximum it is."""
    kernel, padding, dilation = (_each(v, count) for v in (kernel, padding, dilation))
    stride = _each(stride, count) if stride else kernel
    sizes, outputs = x.shape[-count:], grad.shape[-count:]
    rows = [_windows(*row) for row in zip(sizes, outputs, kernel, stride, padding, dilation, strict=True)]
    own: Any = 0
    for d, n in enumerate(sizes):
        own = own * n + _along(torch.arange(n), d, count)
    total = None
    for chosen in itertools.product(*rows):
        here = _held(chosen) & (_gathered(indices, chosen) == own)
        part = torch.where(here, _gathered(grad, chosen), 0.0)
        total = part if total is None else total + part
    assert total is not None
    return total


@_of_both("aten.adaptive_max_pool{}d_backward")
def adaptive_max_pool_backward(count: int, grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """Windows of any sizes, which may overlap: the gradients are added where the maxima were."""
    zeros = torch.zeros_like(x).flatten(-count)
    return zeros.scatter_add(-1, indices.flatten(-count), grad.flatten(-count)).reshape(x.shape)


# means ---------------------------------------------------------------------------------------------------------------
@_of_both("aten.avg_pool{}d_backward")
def avg_pool_backward(
    count: int,
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """An element gets a share of the gradient of each window that it lies in."""
    kernel, padding = _each(kernel, count), _each(padding, count)
    stride = _each(stride, count) if stride else kernel
    sizes, outputs = x.shape[-count:], grad.shape[-count:]
    wide = grad.to(torch.float32) if grad.dtype in (torch.float16, torch.bfloat16) else grad
    for d, (n, m, k, s, p) in enumerate(zip(sizes, outputs, kernel, stride, padding, strict=True)):
        if divisor is None:
            start = torch.arange(m) * s - p
            end = (start + k).clamp(max=n + p)
            held = end - start if include_pad else end.clamp(max=n) - start.clamp(min=0)
            wide = wide / _along(held, d, count).to(wide.dtype)
        dim, total = wide.dim() - count + d, None
        for window, own in _windows(n, m, k, s, p, 1):
            part = torch.where(_along(own, d, count), wide.index_select(dim, window), 0.0)
            total = part if total is None else total + part
        assert total is not None
        wide = total
    wide = wide if divisor is None else wide / divisor
    return wide.to(grad.dtype)


@_of_both("aten._adaptive_avg_pool{}d_backward")
def adaptive_avg_pool_backward(count: int, grad: Tensor, x: Tensor) -> Tensor:
    """The mean of all gives each the same share; else a sum over the windows, whose bounds are those of torch."""
    if all(isinstance(n, int) and n == 1 for n in grad.shape[-count:]):
        return (grad / math.prod(x.shape[-count:])).expand(x.shape)
    for d in range(count):
        dim = grad.dim() - count + d
        n, m = x.shape[dim], grad.shape[dim]
        at, window = torch.arange(n).unsqueeze(1), torch.arange(m)
        start = torch.div(window * n, m, rounding_mode="floor")
        end = torch.div((window + 1) * n + m - 1, m, rounding_mode="floor")
        share = torch.where((at >= start) & (at < end), 1.0 / (end - start).to(grad.dtype), 0.0)
        grad = torch.matmul(share, grad.transpose(dim, -2)).transpose(dim, -2) if d < count - 1 else grad @ share.t()
    return grad
