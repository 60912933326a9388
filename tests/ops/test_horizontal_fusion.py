"""Reductions of the same elements, in one reading: each as exact as alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch.nn import functional as F

from ..helpers.programs import Call1


def of_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.amax(-1) - x.amin(-1), x.mean(-1), (x * x).sum(-1).sqrt() / x.abs().amax(-1)


def of_columns(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.cat([x.mean(0, keepdim=True), x.amax(0, keepdim=True)]), (x > 0).sum(0)


def by_hand(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Means and deviations, and what is left of the rows without them."""
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return ((x - mean) / (deviation + 1e-5),)


def one_of_the_other(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The second reduction needs what the first one comes to."""
    return x.amax(-1), (x - x.amax(-1, keepdim=True)).exp().sum(-1)


def alike(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Their sizes are those of the other rows."""
    other = x.flip(-1) + 1
    return F.cosine_similarity(x, other, -1), F.cosine_similarity(x, other, 0), x.mean(-1) - other.amax(-1)


FUNCTIONS = (of_rows, of_columns, by_hand, one_of_the_other, alike)


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v2"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_reductions(function: Any, target: str, tmp_path: Path) -> None:
    inputs = {f"of_{m}_{n}": torch.randn(m, n) for m, n in ((300, 80), (17, 1031), (4096, 48), (3, 70000))}
    entries = {name: (Call1(function), (x,)) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "reductions.pkg", verify=False, target=target)
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for name, x in inputs.items():
        found, again = (model.entry(name)(x) for model in models)
        found, again = ((r if isinstance(r, (tuple, list)) else (r,)) for r in (found, again))
        for got, other, want in zip(found, again, function(x.double()), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(other), rtol=0, atol=0)
            torch.testing.assert_close(torch.as_tensor(got).to(want.dtype), want, rtol=2e-6, atol=2e-5)
