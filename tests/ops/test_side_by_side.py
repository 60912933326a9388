"""Windows that lie side by side, and short rows that are reduced in the order of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
import torch.nn.functional as F

from ..helpers.programs import Call1


def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    flat = x.flatten(1)
    groups = flat.reshape(len(x), -1, 4)
    return (
        F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.max_pool2d(x, (1, 4)), F.avg_pool2d(x, (3, 2)), F.avg_pool2d(x, 8),
        F.max_pool2d(x.relu(), 2), F.lp_pool2d(x, 2, 2), F.avg_pool1d(flat, 4),
        groups.amin(-1), groups.square().sum(-1),
    )  # fmt: skip


#: rows of windows that fill vectors, that end in part of one, that are shorter than one; the last ones of odd widths
SHAPES = [(2, 3, 16, 64), (2, 3, 16, 56), (1, 2, 8, 36), (3, 2, 8, 16), (2, 2, 9, 44)]


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        *((dtype, "cpu") for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)),
        (torch.float32, "cpu:x86-64-v2"),
    ],
    ids=str,
)
def test_windows_side_by_side(dtype: torch.dtype, target: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(8)
    inputs = {f"case{i}": torch.randn(s, generator=generator).to(dtype) for i, s in enumerate(SHAPES)}
    inputs["case0"][0, 0, 3, 5], inputs["case1"][1, 2, 15, 55] = torch.nan, -torch.inf
    entries: dict[str, Any] = {name: (Call1(pools), (x,)) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "pools.pkg", verify=False, target=target)
    limit = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    for threads in (1, 2):
        model = mycc.load(path, threads=threads)
        for name, x in inputs.items():
            for got, want in zip(model.entry(name)(x), pools(x.double()), strict=True):
                found = torch.as_tensor(got).double()
                torch.testing.assert_close(found, want, rtol=limit, atol=limit, equal_nan=True)


@pytest.mark.parametrize("width", [16, 21, 40, 56, 64])
def test_short_rows_in_order(width: int, tmp_path: Path) -> None:
    """Bands of rows: sums, maxima, several reductions at once."""

    def bands(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = x.reshape(-1, 6, width)
        pool = F.adaptive_avg_pool2d(x[None], (4, width // 2 if width % 2 == 0 else width))
        return parts.sum(1), parts.amax(1), (parts * 2 + 1).prod(1), parts[:, :, : width - 1].amin(1), pool

    x = torch.randn(5, 24, width, generator=torch.Generator().manual_seed(9))
    path = mycc.compile(Call1(bands), (x,), out=tmp_path / "bands.pkg", verify=False)
    alone, together = (mycc.load(path, threads=threads)(x) for threads in (1, 3))
    for got, again, want in zip(alone, together, bands(x.double()), strict=True):
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(again))
        torch.testing.assert_close(torch.as_tensor(got).double(), want, rtol=1e-5, atol=1e-5)


def test_rows_turned_around(tmp_path: Path) -> None:
    """Narrow elements that are moved around the end of their row: of rows longer and shorter than a register."""

    def rolled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.roll(x, by, -1) for by in (1, 3, -5, x.shape[-1] // 2, x.shape[-1] - 1))

    inputs: dict[str, torch.Tensor] = {}
    for width in (8, 15, 31, 33, 64, 100, 1000):
        numbers = torch.arange(7 * width).reshape(7, width) % 251
        inputs[f"u8_{width}"], inputs[f"bool_{width}"] = numbers.to(torch.uint8), numbers % 3 == 0
        half = torch.bfloat16 if width % 2 else torch.float16
        inputs[f"half_{width}"] = numbers.to(half)
    entries: dict[str, Any] = {name: (Call1(rolled), (x,)) for name, x in inputs.items()}
    model = mycc.load(mycc.compile(entries, out=tmp_path / "rolls.pkg", verify=False))
    for name, x in inputs.items():
        for got, want in zip(model.entry(name)(x), rolled(x), strict=True):
            assert torch.equal(torch.as_tensor(got), want)


class Total(torch.nn.Module):
    """Adds pooled values to what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.total: torch.Tensor
        self.register_buffer("total", torch.zeros(3, 28))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(F.max_pool1d(x, 2))
        return self.total * 1


def test_windows_added_in_place(tmp_path: Path) -> None:
    """No element is added twice where the last vector of a row would overlap the one before it."""
    x = torch.randn(3, 56, generator=torch.Generator().manual_seed(10))
    model = mycc.load(mycc.compile(Total(), (x,), out=tmp_path / "total.pkg", verify=False))
    want = Total()
    for _ in range(3):
        torch.testing.assert_close(torch.as_tensor(model(x)), want(x), rtol=0, atol=0)
