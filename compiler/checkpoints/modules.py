"""Layers whose weights are integers, in the place of a network's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..model.operators import dequantize, quantised  # noqa: F401  # defines the operators
from ..quantize.rewrite import SMALLEST, Range, dynamic_linear, rounded
from .weights import PackedWeight

__all__ = ["PackedEmbedding", "PackedLinear"]

mycc = torch.ops.mycc


class _Packed(nn.Module):
    """Holds the tensors of a weight. They are buffers, and share memory with whoever is given the same weight."""

    values: Tensor
    scales: Tensor
    zeros: Tensor | None
    order: Tensor | None

    def __init__(self, weight: PackedWeight, dtype: torch.dtype) -> None:
        super().__init__()
        self.bits, self.group, self.dtype = weight.bits, weight.group, dtype
        for name in ("values", "scales", "zeros", "order"):
            self.register_buffer(name, getattr(weight, name))

    def floats(self) -> Tensor:
        """What the integers stand for, [N, K]."""
        found: Tensor = mycc.dequantize(self.values, self.scales, self.zeros, self.bits, self.group, self.dtype)
        return found


class PackedLinear(_Packed):
    """x [..., K] -> x @ weight^T + bias, [..., N]."""

    def __init__(self, weight: PackedWeight, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(weight, dtype)
        self.activations, self.range = weight.activations, weight.range
        self.bias = None if bias is None else nn.Parameter(bias.to(dtype), requires_grad=False)

    @property
    def weight(self) -> Tensor:
        """For code of networks that asks for its dtype or device."""
        return self.scales.new_empty(0, dtype=self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self.order is not None:
            x = x.index_select(-1, self.order)
        if self.activations == "rows":
            return self._of_rows(x)
        if self.range is not None:
            x = rounded(x, Range(*self.range))
        return nn.functional.linear(x, self.floats(), self.bias)

    def _of_rows(self, x: Tensor) -> Tensor:
        """The product with each row of x as int8, by a scale that makes its largest element 127."""
        if self.zeros is None and self.group == self.values.shape[1] and self.bits == 8:
            return dynamic_linear(x, self.values, self.scales.float().reshape(-1), self.bias)
        wide = x if x.dtype == torch.float64 else x.float()
        own = (wide.abs().amax(-1, True) / 127.0).clamp(min=SMALLEST)
        q = torch.clamp(torch.round(wide / own), -127, 127).to(torch.int8)
        y = mycc.grouped_int_mm(q, None, self.values, self.scales, self.zeros, self.bits, self.group) * own
        return (y if self.bias is None else y + self.bias).to(x.dtype)


class PackedEmbedding(_Packed):
    """ids [...] -> rows of the weight, [..., K]."""

    def __init__(self, weight: PackedWeight, dtype: torch.dtype) -> None:
        super().__init__(weight, dtype)
        self._integers = weight
        self.num_embeddings, self.embedding_dim = weight.values.shape

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.floats())

    def as_linear(self) -> PackedLinear:
        """An output head of the same weight."""
        return PackedLinear(self._integers, None, self.dtype)
