"""Norms and softmax of many rows that a second level cache has no room for: two rows come by piece by piece."""

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

#: rows of whole vectors in a piece and of odd pieces
SHAPES = [(84, 100352), (96, 3, 187, 188)]


def standard(x: torch.Tensor) -> torch.Tensor:
    rows = x.flatten(1)
    return (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True)


FUNCTIONS = {
    "softmax": lambda x: x.flatten(1).softmax(-1) * 1000,
    "log_softmax": lambda x: x.flatten(1).log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "standard": standard,
}


def given(shape: tuple[int, ...]) -> torch.Tensor:
    """Rows with levels of their own, that grow along the row."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    grown = x.flatten(1) + 5 * torch.linspace(-1, 1, x[0].numel()) + torch.linspace(-40, 40, shape[0])[:, None]
    return grown.reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """As exact as eager, the same bits at any number of threads; a row without numbers leaves the others alone."""
    function: Any = FUNCTIONS[name]
    x = given(shape)
    path = mycc.compile(Call1(function), (x,), out=tmp_path / "rows.pkg", verify=False, target="cpu")
    assert any("samples_per_task" in text for text in kernel_sources(path)), "rows are not taken by twos"
    models = [mycc.load(path, threads=threads) for threads in (1, 2, 3)]
    assert len(models[0].profile([x], 1)) == 1, "it is not one kernel"
    one, *others = (np.asarray(model(x)) for model in models)
    for other in others:
        np.testing.assert_array_equal(one, other)
    want = function(x.double()).numpy()
    error, eager = (np.abs(got - want).max() for got in (one, function(x).double().numpy()))
    assert error <= 2 * eager + 2e-7 * np.abs(want).max()

    rows = x.flatten(1)
    rows[3, 777], rows[5, -1], rows[6, 5], rows[8] = torch.nan, torch.inf, -torch.inf, -torch.inf
    got, want = torch.as_tensor(models[1](x)), function(x.double())
    torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4, equal_nan=True)
