"""Convolutions whose weight the model computes: of parameters alone it is a constant, as any other weight."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.ir.structured import Conv
from torch import Tensor

from ..helpers.programs import lowered

#: weights of parameters: one that has the weight's size, and one for each output
OF_PARAMETERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "plain": lambda w, d: w,
    "scaled": lambda w, d: w * d,
    "weight_norm": lambda w, d: torch._weight_norm(w, d, 0),
    "standardised": lambda w, d: (w - w.mean((1, 2, 3), True)) / w.var((1, 2, 3), keepdim=True).sqrt(),
    "batch_norm": lambda w, d: F.batch_norm(w.reshape(1, len(w), -1), None, None, training=True).reshape_as(w),
    "a sum of low rank": lambda w, d: w + (d.flatten(1) @ d.flatten(1).t()).reshape(-1, 1, 1, 1)[: len(w)],
    "a view": lambda w, d: w.reshape(w.shape[1], w.shape[0], *w.shape[2:]).transpose(0, 1),
    "one for all channels": lambda w, d: w[:1, :1].expand(w.shape),
}


@pytest.mark.parametrize("groups", [1, 4, 32])
@pytest.mark.parametrize("name", OF_PARAMETERS)
def test_weights_of_parameters_are_constants(name: str, groups: int) -> None:
    """The kernel is the same one as for a plain weight, with a constant of as many elements."""
    w, d, x = torch.randn(32, 32 // groups, 3, 3), torch.rand(32, 1, 1, 1), torch.randn(2, 32, 14, 14)

    def conv(make: Callable[[Tensor, Tensor], Tensor]) -> list[Conv]:
        program = lowered(lambda x: F.conv2d(x, make(w, d), None, 1, 1, 1, groups), x).program
        return [n for n in program.nodes if isinstance(n, Conv)]

    (plain,), (own,) = conv(OF_PARAMETERS["plain"]), conv(OF_PARAMETERS[name])
    assert own.w.kind == plain.w.kind == "const"
    assert (own.algorithm, own.window, own.w.size) == (plain.algorithm, plain.window, plain.w.size)
