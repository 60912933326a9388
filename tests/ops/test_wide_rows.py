"""Reductions of long rows that lie far apart in memory: blocks of many columns, and rows that are reduced in
registers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch

from ..helpers.programs import Call1
from ..helpers.sources import kernel_sources


def reductions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.amax(1), x.amin(1), x.sum(1), x.square().mean(1), (x > 2).any(1), x.amax(1) - x.amin(1), x.argmax(1)


#: rows that go together evenly and not, one block of columns that is not whole, few rows
SHAPES = [(2, 20, 70001), (1, 17, 140032), (3, 64, 9000), (2, 7, 70001), (1, 100, 33000)]


def rows_of(shape: tuple[int, ...]) -> torch.Tensor:
    """Random rows with infinities and a NaN."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    x[0, 1, 5], x[0, 2, 6], x[-1, 3, -1] = float("inf"), float("-inf"), float("nan")
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_reductions_of_wide_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    inputs = {f"rows{i}": rows_of(shape).to(dtype) for i, shape in enumerate(SHAPES)}
    entries = {name: (Call1(reductions), (x,)) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "wide.pkg", verify=False)
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    limit = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]
    for name, x in inputs.items():
        alone, together = (model.entry(name)(x) for model in models)
        for got, again, want in zip(alone, together, reductions(x.double()), strict=True):
            got, again = torch.as_tensor(got), torch.as_tensor(again)
            assert torch.equal(got.nan_to_num(7.0), again.nan_to_num(7.0))
            assert torch.allclose(got.double(), want.double(), rtol=limit, atol=limit * 20, equal_nan=True)


def test_blocks_of_wide_rows_are_long(tmp_path: Path) -> None:
    x = torch.randn(2, 20, 70001)
    path = mycc.compile(Call1(lambda a: a.amax(1)), (x,), out=tmp_path / "wide.pkg", verify=False)
    assert "acc0_rows[8192]" in "".join(kernel_sources(path))


@pytest.mark.parametrize("reduction", [lambda a: a.amax(1), lambda a: a.sum(1), lambda a: a.argmin(1)])
def test_threads_share_a_long_row(reduction: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path) -> None:
    x = torch.randn(1, 3, 16384 * 9)
    path = mycc.compile(Call1(reduction), (x,), out=tmp_path / "wide.pkg", verify=False)
    assert "parallel(host, 6, " in "".join(kernel_sources(path))
    assert torch.allclose(torch.as_tensor(mycc.load(path)(x)), reduction(x), atol=1e-5)
