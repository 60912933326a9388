"""Pools with ceil_mode over dynamic sizes.

A window that would begin behind the input and its padding is left out. torch asks whether there is one at the
example's size, and takes the answer for all sizes; here the number of windows is a formula:

    windows = min((n + 2 pad - dilation (kernel - 1) - 2 + stride) // stride + 1, (n + pad - 1) // stride + 1)

The first never is more than the second where the kernel spans the stride and the padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._meta_registrations as meta

__all__ = ["average_of_a_line", "maximum_of_a_line", "pools_of_all_sizes"]

_NAME = "pooling_output_shape_pad_lr"


@contextmanager
def pools_of_all_sizes() -> Iterator[None]:
    """While it lasts, fake tensors of dynamic sizes count windows by the formula."""
    before = getattr(meta, _NAME)

    def count(size: Any, kernel: Any, left: Any, right: Any, stride: Any, dilation: Any, ceil_mode: bool) -> Any:
        if not ceil_mode or not isinstance(size, torch.SymInt):
            return before(size, kernel, left, right, stride, dilation, ceil_mode)
        whole: Any = size
        span = dilation * (kernel - 1) + 1
        windows = (whole + left + right - span + stride - 1) // stride + 1
        if span >= stride + right:
            return windows
        return torch.sym_min(windows, (whole + left - 1) // stride + 1)

    setattr(meta, _NAME, count)
    try:
        yield
    finally:
        setattr(meta, _NAME, before)


def _is_dynamic(x: torch.Tensor, ceil_mode: bool) -> bool:
    return ceil_mode and isinstance(x.shape[-1], torch.SymInt)


def _flat(size: Any, around: int) -> list[int] | None:
    """The size of a window in one dimension as one in two; None: not given."""
    own = list(size) if isinstance(size, (list, tuple)) else [size] if size is not None else []
    return [around, own[0]] if own else None


def maximum_of_a_line(
    function: Callable[..., Any],
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """max_pool1d and max_pool1d_with_indices, of torch and of its functions: compiled code that takes numbers only."""
    places = return_indices or function.__name__.endswith("_with_indices")
    if not _is_dynamic(x, ceil_mode):
        own = torch.max_pool1d_with_indices if places else torch.max_pool1d
        return own(x, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)
    form: Any = (_flat(kernel_size, 1), _flat(stride, 1), _flat(padding, 0), _flat(dilation, 1), True)
    found = torch.nn.functional.max_pool2d_with_indices(x.unsqueeze(-2), *form)
    values, at = (t.squeeze(-2) for t in found)
    return (values, at) if places else values


def average_of_a_line(
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    """torch.avg_pool1d, likewise."""
    if not _is_dynamic(x, ceil_mode):
        return torch.avg_pool1d(x, kernel_size, () if stride is None else stride, padding, ceil_mode, count_include_pad)
    form: Any = (_flat(kernel_size, 1), _flat(stride, 1), _flat(padding, 0), True, count_include_pad)
    return torch.nn.functional.avg_pool2d(x.unsqueeze(-2), *form).squeeze(-2)
