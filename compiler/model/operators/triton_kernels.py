"""Calls of Triton kernels in models, as an operator of mycc's own: functional, its tensors and numbers by position.

    kernel[grid](x, y, out, n, BLOCK=256)      ->      (new_out,) = mycc::triton_kernel([x, y, out], grid, [n], call)

`call` is the number of a KernelCall, which says what the kernel is and which parameter gets what.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .kept import CUSTOM
from .own import own_operator

__all__ = ["NAME", "KernelCall", "kernel_call", "remember"]

NAME = "mycc.triton_kernel.default"
CUSTOM.add(NAME)
_calls: dict[int, KernelCall] = {}
_numbers = itertools.count()


@dataclass(frozen=True)
class KernelCall:
    """What a call of a kernel is, beside its tensors, its grid and its sizes.

    Attributes:
        kernel: the @triton.jit function.
        arguments: of each parameter that is no constant, in order: ("tensor", position), ("size", position) or
            ("number", a float or a bool).
        constants: the other parameters by name: tl.constexpr ones, None, and numbers that are 1.
        dtypes, orders: of each tensor; orders: its dimensions from the slowest to the fastest in memory.
        written: positions of the tensors that the kernel writes to; the results are their new values.
        options: num_warps, num_stages, num_ctas, maxnreg, as far as they are given.
    """

    kernel: Any
    arguments: tuple[tuple[str, str, int | float | bool], ...]
    constants: tuple[tuple[str, Any], ...]
    dtypes: tuple[torch.dtype, ...]
    orders: tuple[tuple[int, ...], ...]
    written: tuple[int, ...]
    options: Mapping[str, int]

    @property
    def name(self) -> str:
        """The kernel's name in Python."""
        return str(getattr(self.kernel, "__name__", self.kernel))


def remember(call: KernelCall) -> int:
    """The number by which the operator names a call, for the life of the process."""
    number = next(_numbers)
    _calls[number] = call
    return number


def kernel_call(number: int) -> KernelCall:
    """The call of a user's Triton kernel that capture registered under this number."""
    return _calls[number]


def _fake(tensors: Sequence[Tensor], grid: Sequence[Any], sizes: Sequence[Any], call: int) -> list[Tensor]:
    given = (tensors[i] for i in _calls[call].written)
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in given]


@own_operator("triton_kernel(Tensor[] tensors, SymInt[] grid, SymInt[] sizes, int call) -> Tensor[]", _fake)
def triton_kernel(tensors: Sequence[Tensor], grid: Sequence[int], sizes: Sequence[int], call: int) -> list[Tensor]:
    """Runs the kernel on this machine's GPU, on copies of the tensors in the model's own dtypes."""
    given = _calls[call]
    if not torch.cuda.is_available():
        raise NotImplementedError(f"the Triton kernel {given.name} runs on GPUs alone")
    copies = [_copy(t, d, order) for t, d, order in zip(tensors, given.dtypes, given.orders, strict=True)]
    values: dict[str, Any] = dict(given.constants)
    for name, kind, value in given.arguments:
        values[name] = copies[int(value)] if kind == "tensor" else sizes[int(value)] if kind == "size" else value
    given.kernel[tuple(grid)](**values, **given.options)
    return [copies[i].to(tensors[i]) for i in given.written]


def _copy(t: Tensor, dtype: torch.dtype, order: Sequence[int]) -> Tensor:
    """On the GPU, in this memory order."""
    permuted = t.permute(tuple(order)).to("cuda", dtype, copy=True, memory_format=torch.contiguous_format)
    return permuted.permute(tuple(list(order).index(d) for d in range(len(order))))
