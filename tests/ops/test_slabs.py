"""Reductions over a dimension in the middle, fused slab by slab with what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch

SHAPES = [(16, 20, 37), (40, 3, 64), (5, 8, 33, 70)]  # rows of slabs; few of them; more dimensions


class Slabs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = (x - x.mean(-2, keepdim=True)) * torch.rsqrt(x.var(-2, keepdim=True) + 1e-5)
        best = x * 3 - x.amax(-2, keepdim=True)
        return x.softmax(-2), x.log_softmax(-2), scaled, best, best.sum(-2), (x > 0).any(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_slabs(dtype: torch.dtype, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = {f"case{i}": (torch.randn(*s, generator=generator).to(dtype),) for i, s in enumerate(SHAPES)}
    inputs["case0"][0][0, 0, 0] = float("nan")
    entries: dict[str, Any] = {name: (Slabs(), x) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "slabs.pkg", verify=False, target="cpu")
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    limit = 1e-5 if dtype == torch.float32 else 1e-12
    for name, (x,) in inputs.items():
        found, again = (list(model.entry(name)(x)) for model in models)
        for got, other, want in zip(found, again, Slabs()(x.double()), strict=True):
            assert torch.equal(torch.nan_to_num(got.double()), torch.nan_to_num(other.double()))
            np.testing.assert_allclose(got.double(), want.double(), rtol=limit, atol=limit)


class Places(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.argmax(0), x.argmin(0), x.double().argmax(0), n.argmax(0), n.argmin(0)


def test_indices_over_blocks_of_columns(tmp_path: Path) -> None:
    """More rows than are taken at a time, more columns than a block has; equal values, infinities, NaN."""
    generator = torch.Generator().manual_seed(4)
    n = torch.randint(-9, 9, (43, 2085), generator=generator)
    x = n.to(torch.float32)
    x[:, 7], x[5, 11], x[41, 2084], x[3, 2084] = -torch.inf, torch.nan, torch.nan, torch.inf
    path = mycc.compile(Places(), (x, n), out=tmp_path / "places.pkg", verify=False, target="cpu")
    for threads in (1, 2):
        for got, want in zip(mycc.load(path, threads=threads)(x, n), Places()(x, n), strict=True):
            assert torch.equal(torch.as_tensor(got), want)


class Extrema(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *x.max(1), *x.min(1), x.argmax(1), x.argmin(1)


@pytest.mark.parametrize("rows", [21, 64, 67])
def test_extrema_and_their_indices(rows: int, tmp_path: Path) -> None:
    """The value is taken from where the place is found; ties go to the first, NaN wins; groups of several sizes."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randint(-9, 9, (3, rows, 69), generator=generator).float()
    x[0, :, 3], x[1, 5, 4], x[1, 9, 4], x[2, rows - 1, 68] = -torch.inf, torch.nan, torch.nan, torch.nan
    x[2, :, 1] = torch.nan
    inputs = {str(dtype)[6:]: (x.to(dtype),) for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}
    inputs["int32"] = (torch.nan_to_num(x, 0, 99, -99).int(),)
    entries: dict[str, Any] = {name: (Extrema(), x) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "extrema.pkg", verify=False, target="cpu")
    for threads in (1, 2):
        model = mycc.load(path, threads=threads)
        for name, given in inputs.items():
            for got, want in zip(model.entry(name)(*given), Extrema()(*given), strict=True):
                assert torch.equal(torch.as_tensor(got).double().nan_to_num(77), want.double().nan_to_num(77))
