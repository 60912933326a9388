"""Operators of mycc's own that the graph passes bring in, with what they compute, for torch.

They work on real tensors: of a complex value, the real and the imaginary part; `table` is of compiler/fourier.py, or
None where the size is not known. Implemented by torch for constants that
are folded; the lowering has them in lower/fourier.py and lower/scan.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("mycc", "FRAGMENT")


def own_operator(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Defines mycc::name from its schema; the decorated function computes it, for real and for fake tensors."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _LIBRARY.define(schema)
        name = schema.split("(")[0]
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"mycc::{name}", function)
        return function

    return add


def _parts(z: Tensor) -> tuple[Tensor, Tensor]:
    return z.real.contiguous(), z.imag.contiguous()


@own_operator("complex_cumprod(Tensor re, Tensor im, int dim) -> (Tensor, Tensor)")
def complex_cumprod(re: Tensor, im: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Running products along `dim`."""
    return _parts(torch.cumprod(torch.complex(re, im), dim))


@own_operator("fft(Tensor re, Tensor im, Tensor? table, bool forward) -> (Tensor, Tensor)")
def fft(re: Tensor, im: Tensor, table: Tensor | None, forward: bool) -> tuple[Tensor, Tensor]:
    """The discrete Fourier transform along the last dimension, not scaled; the inverse's sign when not `forward`."""
    z = torch.complex(re, im)
    return _parts(torch.fft.fft(z) if forward else torch.fft.ifft(z, norm="forward"))


@own_operator("rfft(Tensor x, Tensor? table) -> (Tensor, Tensor)")
def rfft(x: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor]:
    """The first n // 2 + 1 values of the forward transform of n real ones along the last dimension."""
    return _parts(torch.fft.rfft(x))


@own_operator("irfft(Tensor re, Tensor im, Tensor? table, SymInt n) -> Tensor")
def irfft(re: Tensor, im: Tensor, table: Tensor | None, n: int) -> Tensor:
    """The n real values whose transform begins with these n // 2 + 1, not scaled by 1 / n."""
    return torch.fft.irfft(torch.complex(re, im), n, norm="forward").contiguous()
