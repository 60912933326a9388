"""Whole numbers beside narrow integers: torch wraps them to the tensor's type."""

from __future__ import annotations

from pathlib import Path

import mycc
import numpy as np
import torch


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
