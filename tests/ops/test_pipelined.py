"""Reductions whose pipeline stages run a block of columns apart, or a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch

from ..helpers.sources import kernel_sources

#: classes of an image; more rows than are reduced at a time; few of them; a deep column, kept in a larger cache
SHAPES = [(3, 21, 24, 32), (2, 150, 8, 64), (4, 3, 1024), (1, 1100, 1024)]
#: rows of less than a vector, of whole ones, with some lanes more, in pieces; fewer rows than pipeline stages
ROWS = [(40, 13), (37, 64), (5, 8, 197), (70, 2050), (2, 48)]


class Reduced(torch.nn.Module):
    """All that keeps something for a later pipeline_stage: terms, what is read again, what is older than a block or a
    row."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        d = self.dim
        centred = x - x.mean(d, keepdim=True)
        normed = centred * torch.rsqrt(centred.square().mean(d, keepdim=True) + 1e-5)
        mixed = (x + y).softmax(d) * y
        return x.softmax(d), x.log_softmax(d), x.logsumexp(d), normed, mixed, (x - x.amax(d, keepdim=True)).exp().sum(d)


def given(shape: tuple[int, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator), torch.randn(*shape, generator=generator)


@pytest.mark.parametrize(
    ("dim", "dtype"),
    [
        (1, torch.float32),
        (1, torch.float64),
        (1, torch.bfloat16),
        (1, torch.float16),
        (-1, torch.float32),
        (-1, torch.half),
    ],
    ids=str,
)
def test_pipeline_stages(dtype: torch.dtype, dim: int, tmp_path: Path) -> None:
    """As exact as eager, the same bits at any number of threads."""
    shapes = SHAPES if dim == 1 else ROWS
    shapes = shapes if dtype == torch.float32 else shapes[:3]
    inputs = {f"case{i}": tuple(t.to(dtype) for t in given(s, i)) for i, s in enumerate(shapes)}
    entries: dict[str, Any] = {name: (Reduced(dim), x) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "reduced.pkg", verify=False, target="cpu")
    sources = kernel_sources(path)
    assert sum(s.count("const bool active_2") for s in sources) >= 4
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for name, x in inputs.items():
        found, again = (list(model.entry(name)(*x)) for model in models)
        exact, eager = Reduced(dim)(*(t.double() for t in x)), Reduced(dim)(*x)
        for got, other, want, own in zip(found, again, exact, eager, strict=True):
            got = torch.as_tensor(got)
            assert torch.equal(got, torch.as_tensor(other))
            error, allowed = (got.double() - want).abs().max(), 2 * (own.double() - want).abs().max()
            assert error <= allowed + 2e-7 * want.abs().max()


@pytest.mark.parametrize("dim", [1, -1], ids=["columns", "rows"])
def test_infinities_and_nan(dim: int, tmp_path: Path) -> None:
    """Columns and rows that hold them are as torch has them, and leave their neighbours alone."""
    x, y = given(SHAPES[0], 5)
    x[0, :, 0, 1], x[1, 20, 3, 5], x[2, 0, 23, 31], x[1, 4, 7, 2] = -torch.inf, torch.inf, torch.nan, -torch.inf
    x[2, 7, 3, :] = -torch.inf
    path = mycc.compile(Reduced(dim), (x, y), out=tmp_path / "reduced.pkg", verify=False, target="cpu")
    for got, want in zip(mycc.load(path)(x, y), Reduced(dim)(x, y), strict=True):
        np.testing.assert_allclose(torch.as_tensor(got), want, rtol=2e-5, atol=2e-6)
