"""Reductions across the lanes whose phases run a block of columns apart."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch

#: classes of an image; more rows than are folded at a time; few of them; a deep column, kept in a larger cache
SHAPES = [(3, 21, 24, 32), (2, 150, 8, 64), (4, 3, 1024), (1, 1100, 1024)]


class Columns(torch.nn.Module):
    """All that keeps something for a later phase: terms, what is read again, what is older than a block."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        centred = x - x.mean(1, keepdim=True)
        normed = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)
        mixed = (x + y).softmax(1) * y
        return x.softmax(1), x.log_softmax(1), x.logsumexp(1), normed, mixed, (x - x.amax(1, keepdim=True)).exp().sum(1)


def given(shape: tuple[int, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator), torch.randn(*shape, generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_columns(dtype: torch.dtype, tmp_path: Path) -> None:
    """As exact as eager, the same bits at any number of threads."""
    shapes = SHAPES if dtype == torch.float32 else SHAPES[:2]
    inputs = {f"case{i}": tuple(t.to(dtype) for t in given(s, i)) for i, s in enumerate(shapes)}
    entries: dict[str, Any] = {name: (Columns(), x) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "columns.pkg", verify=False, target="cpu")
    with zipfile.ZipFile(path) as package:
        sources = [package.read(n).decode() for n in package.namelist() if "/kernels_" in n and n.endswith(".cpp")]
    assert sum(s.count("const bool turn_2") for s in sources) >= 4
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for name, x in inputs.items():
        found, again = (list(model.entry(name)(*x)) for model in models)
        exact, eager = Columns()(*(t.double() for t in x)), Columns()(*x)
        for got, other, want, own in zip(found, again, exact, eager, strict=True):
            got = torch.as_tensor(got)
            assert torch.equal(got, torch.as_tensor(other))
            error, allowed = (got.double() - want).abs().max(), 2 * (own.double() - want).abs().max()
            assert error <= allowed + 2e-7 * want.abs().max()


def test_infinities_and_nan(tmp_path: Path) -> None:
    """Columns that hold them are as torch has them, and leave their neighbours alone."""
    x, y = given(SHAPES[0], 5)
    x[0, :, 0, 1], x[1, 20, 3, 5], x[2, 0, 23, 31], x[1, 4, 7, 2] = -torch.inf, torch.inf, torch.nan, -torch.inf
    path = mycc.compile(Columns(), (x, y), out=tmp_path / "columns.pkg", verify=False, target="cpu")
    for got, want in zip(mycc.load(path)(x, y), Columns()(x, y), strict=True):
        np.testing.assert_allclose(torch.as_tensor(got), want, rtol=2e-5, atol=2e-6)
