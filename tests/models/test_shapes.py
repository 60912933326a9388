"""Dynamic sizes: relations, and what depends on them; sizes that a model fixes are errors that name its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import capture
from torch.export import Dim
from torch.utils import _pytree as pytree

from .shape_models import ROWS, Row


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    entries = {
        row.name.replace(" ", "_"): (row.module(), row.inputs(dict(row.at[-1])), None, row.dynamic_shapes())
        for row in ROWS
    }
    return mycc.load(mycc.compile(entries, out=tmp_path_factory.mktemp("shapes") / "shapes.pkg", verify=False))


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_sizes(package: Any, row: Row) -> None:
    for sizes in row.at:
        given = row.inputs(sizes)
        wanted = pytree.tree_leaves(row.module()(*given))
        found = pytree.tree_leaves(package.entry(row.name.replace(" ", "_"))(*given))
        for f, w in zip(found, wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(f), w, rtol=1e-5, atol=1e-5)


def loops(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(3)
    for i in range(x.shape[0]):  # fixed here
        total = total + x[i]
    return total


def shares(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 2, 3).sum(0)  # fixed here


def adds(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(4, 3)  # fixed here


def unbinds(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row.sum() for row in x.unbind(0)])  # fixed here


FIXED = (loops, shares, adds, unbinds)


@pytest.mark.parametrize("model", FIXED, ids=[f.__name__ for f in FIXED])
def test_a_fixed_size_names_the_line(model: Callable[..., Any]) -> None:
    first = model.__code__.co_firstlineno
    text = Path(__file__).read_text().splitlines()
    line = next(i for i in range(first, first + 9) if text[i - 1].endswith("# fixed here"))
    with pytest.raises(CompileError) as caught:
        capture(model, (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n", max=9)},))
    assert re.search(rf"test_shapes\.py:{line}\b", str(caught.value)), str(caught.value)
    assert "n" in str(caught.value)
