"""Whole numbers beside narrow integers: torch wraps them to the tensor's type."""

from __future__ import annotations

from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor


class Numbers(torch.nn.Module):
    """u8 and i8 with numbers that they do not hold."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a > 300, a == 300, a < -1, a + 300, a * -1, 300 - a, a // 300, a % 300, a + 300.5, b > 200, b + 200


def test_numbers_wrap_as_in_torch(tmp_path: Path) -> None:
    a = torch.tensor([0, 1, 43, 44, 45, 200, 255] * 5, dtype=torch.uint8)
    b = torch.tensor([-128, -57, -56, -55, 0, 72, 127] * 5, dtype=torch.int8)
    model = mycc.load(mycc.compile(Numbers(), (a, b), out=tmp_path / "numbers.pkg", verify=False))
    for got, want in zip(model(a, b), Numbers()(a, b), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want.numpy())


class Pools(torch.nn.Module):
    """Windows with borders, over rows of vectors and over short ones."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        f = torch.nn.functional
        return f.max_pool2d(x, 3, 2, 1), f.max_pool2d(x, (2, 3), 1, (1, 0)), f.max_pool2d(x[:, :3], 2)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_maxima_of_integers_leave_out_what_lies_outside(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randint(-128, -1, (2, 40, 9, 18), generator=torch.Generator().manual_seed(0)).to(dtype)
    model = mycc.load(mycc.compile(Pools(), (x,), out=tmp_path / "pools.pkg", verify=False))
    for got, want in zip(model(x), Pools()(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want.numpy())


class _PooledBytes(torch.nn.Module):
    """Maxima of windows that casts make bytes of: by their low bits, but behind a clamp to the range of bytes."""

    def forward(self, x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        pooled, whole = F.max_pool2d(x, 2), F.max_pool2d(i, 2)
        return (
            pooled.to(torch.int8), pooled.to(torch.uint8), (pooled * 100).clamp(-100, 300).to(torch.uint8),
            (pooled * 3).round().clamp(-128, 127).to(torch.int8), (pooled * 3).clamp(0, 255).round().to(torch.uint8),
            whole.to(torch.int8), (whole * 2).to(torch.uint8),
        )  # fmt: skip


def test_casts_behind_pools_keep_the_low_bits(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x = 300 * torch.randn(1, 16, 8, 8, generator=draw)
    i = torch.randint(-500, 500, (1, 16, 8, 8), generator=draw, dtype=torch.int32)
    model = _PooledBytes()
    package = mycc.load(mycc.compile(model, (x, i), out=tmp_path / "pools.pkg"))
    for found, wanted in zip(package(x, i), model(x, i), strict=True):
        assert torch.equal(found, wanted)
