"""Writes through expanded views: all copies of an element lie in the same memory, and the last write stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
from torch import Tensor, nn


def minus_one(x: Tensor, k: Tensor) -> Tensor:
    v = x[1:].expand(2, 3)
    v[:, k] -= 1
    return v.clone()


def twice(x: Tensor, k: Tensor) -> Tensor:
    v = x.expand(3, 4)
    v[:, k] = v[:, k] * 2
    return v.contiguous()


def one_copy(x: Tensor, k: Tensor) -> Tensor:
    x[:, None].expand(4, 3)[k, 2] = torch.arange(4.0) + 10
    return x * 1


def filled(x: Tensor, k: Tensor) -> Tensor:
    v = x.expand(2, 4)
    v.masked_fill_(v > 1, -5.0)
    v.index_fill_(1, k, 7.0)
    return v.clone()


def the_old_value_again(x: Tensor, k: Tensor) -> Tensor:
    """The second copy writes what lay there before the first one."""
    v = x.expand(2, 4)
    v[:, k] = torch.stack([x[k] + 1, x[k]])
    return v.clone()


def negative_zero(x: Tensor, k: Tensor) -> Tensor:
    x.zero_()
    x.expand(2, 4).index_fill_(1, k, -0.0)
    return 1 / x


class Of(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, k: Tensor) -> Tensor:
        return self.function(x, k)


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
@pytest.mark.parametrize("function", [minus_one, twice, one_copy, filled, the_old_value_again, negative_zero])
def test_the_last_write_stays(function: Callable[[Tensor, Tensor], Tensor], tmp_path: Path) -> None:
    x, k = torch.tensor([0.5, 1.0, float("nan"), 3.0]), torch.tensor([0, 1, 1, 0])
    package = mycc.load(mycc.compile(Of(function), (x.clone(), k), out=tmp_path / "m.pkg", progress=False))
    for indices in (k, torch.tensor([2, 2, 0, 1])):
        given, expected = x.numpy().copy(), x.clone()
        result = function(expected, indices)
        np.testing.assert_array_equal(package(given, indices.numpy()), result.numpy())
        np.testing.assert_array_equal(given, expected.numpy())


def among_copies(x: Tensor, k: Tensor) -> Tensor:
    x.expand(2, 4)[torch.arange(2), torch.zeros(2, dtype=torch.int64)] = torch.tensor([5.0, 6.0])
    return x * 1


def beside_a_retrace(x: Tensor, k: Tensor) -> Tensor:
    """vmap's parts go through torch's own functionalisation, which adds the changes of all copies up."""
    x.expand(2, 4)[:, k] -= 1
    return torch.vmap(lambda row: row * 2)(x)


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
@pytest.mark.parametrize("function", [among_copies, beside_a_retrace])
def test_writes_that_have_no_form_are_refused(function: Callable[[Tensor, Tensor], Tensor], tmp_path: Path) -> None:
    with pytest.raises(mycc.CompileError, match=r"elements share memory(.|\n)*test_expanded_writes.py"):
        mycc.compile(Of(function), (torch.ones(4), torch.zeros(2, dtype=torch.int64)), out=tmp_path / "m.pkg")
