"""Group norms of many images whose channels lie last: one kernel, in which two samples come by piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ..helpers.programs import Call1
from ..helpers.sources import kernel_sources

#: images, height, width, channels, groups: rows that are pieces, several rows of one, none; odd channels
SHAPES = [(48, 56, 56, 64, 32), (60, 28, 28, 192, 8), (42, 57, 55, 66, 3), (16, 100, 100, 64, 4)]


def norm(groups: int) -> Any:
    def function(a: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(F.group_norm(a.permute(0, 3, 1, 2), groups, w, b)).permute(0, 2, 3, 1)

    return function


def given(n: int, h: int, w: int, c: int) -> tuple[torch.Tensor, ...]:
    """Images whose channels have means far apart, the weights and the biases of their channels."""
    generator = torch.Generator().manual_seed(c)
    images = 3 * torch.randn(n, h, w, c, generator=generator) + torch.linspace(-40, 40, c)
    return images, torch.randn(c, generator=generator), torch.randn(c, generator=generator)


@pytest.mark.parametrize(("n", "h", "w", "c", "groups"), SHAPES)
def test_norms(n: int, h: int, w: int, c: int, groups: int, tmp_path: Path) -> None:
    function, inputs = norm(groups), given(n, h, w, c)
    path = mycc.compile(Call1(function), inputs, out=tmp_path / "norm.pkg", verify=False, target="cpu")
    one, *others = (np.asarray(mycc.load(path, threads=threads)(*inputs)) for threads in (1, 2, 3))
    for other in others:
        np.testing.assert_array_equal(one, other)
    want = function(*(x.double() for x in inputs)).numpy()
    error, eager = (np.abs(got - want).max() for got in (one, function(*inputs).double().numpy()))
    assert error <= 2 * eager + 2e-7 * np.abs(want).max()
    model = mycc.load(path, threads=1)
    assert len(model.profile([*inputs], 1)) == 1, "it is not one kernel"


def test_a_sample_without_numbers_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    n, h, w, c, groups = SHAPES[0]
    images, weight, bias = given(n, h, w, c)
    images[5, 3, 7, 0] = float("nan")
    images[9, 0, 0, c - 1] = float("inf")
    path = mycc.compile(Call1(norm(groups)), (images, weight, bias), out=tmp_path / "norm.pkg", verify=False)
    got, want = torch.as_tensor(mycc.load(path)(images, weight, bias)), norm(groups)(images, weight, bias)
    assert torch.equal(got.isnan(), want.isnan())
    assert 0 < int(got.isnan().sum()) < got.numel() // n


def by_rows(a: torch.Tensor) -> torch.Tensor:
    """Statistics that are reduced row by row of an image as they are."""
    return a - a.amax(2).mean(1)[:, None, None]


def by_the_one_before(a: torch.Tensor) -> torch.Tensor:
    """The statistics of another sample."""
    return a - F.pad(a.amax(2).mean(1), (0, 0, 1, 0))[:-1, None, None]


def with_statistics(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    means = a.amax(2).mean(1)
    return a - means[:, None, None], means


def response(a: torch.Tensor) -> torch.Tensor:
    """Maps by their length, beside the mean of all channels: one statistic of each sample is a number alone."""
    length = a.norm(p=2, dim=(1, 2), keepdim=True)
    return a * (length / (length.mean(-1, keepdim=True) + 1e-6))


def without_largest(a: torch.Tensor) -> torch.Tensor:
    return a - a.amax((1, 2), keepdim=True)


FUNCTIONS = {by_rows: True, response: True, without_largest: True, by_the_one_before: False, with_statistics: False}


@pytest.mark.parametrize(("function", "alone"), FUNCTIONS.items())
def test_statistics_that_are_no_norm(function: Any, alone: bool, tmp_path: Path) -> None:
    (images, *_) = given(*SHAPES[0][:4])
    path = mycc.compile(Call1(function), (images,), out=tmp_path / "norm.pkg", verify=False)
    assert any("samples_per_task" in text for text in kernel_sources(path)) == alone
    got, want = mycc.load(path, threads=2)(images), function(images.double())
    for g, w in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
        torch.testing.assert_close(torch.as_tensor(g).double(), w, rtol=1e-5, atol=1e-4)
