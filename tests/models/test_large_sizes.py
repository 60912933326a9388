"""Sizes whose products leave 64 bits: every way that memory is asked for ends in an error that says the bytes, as sizes
that wrap would be small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc import RunError

from ..helpers.programs import Call1

N = 1 << 21  # N * N * N is 2 ** 63
MOST = 2**31 - 1
ROWS, COLUMNS = torch.export.Dim("rows", min=2), torch.export.Dim("columns", min=2)
MANY = "9223372036854775807 bytes or more"


def _cube(x: torch.Tensor) -> torch.Tensor:
    return x[:, None, None] * x[None, :, None] * x[None, None, :]


def _size(n: torch.Tensor) -> int:
    k = n.item()
    torch._check(k >= 0)
    return k


X = torch.linspace(0, 1, 3)
BYTES = torch.ones(2, 3, dtype=torch.int8)
#: name -> (function, example inputs, inputs that are too large, what the error says)
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[Any, ...], str]] = {
    "intermediate": (lambda x: _cube(x).sort(-1).values.sum((0, 1)), (X,), (np.ones(N, np.float32),), MANY),
    "output": (_cube, (X,), (np.ones(N, np.float32),), f"the output output takes {MANY}"),
    "flat_output": (lambda x: _cube(x).reshape(-1), (X,), (np.ones(N, np.float32),), f"the output output takes {MANY}"),
    "unstored": (lambda x: _cube(x).sum(), (X,), (np.ones(N, np.float32),), MANY),
    "unstored_rows": (lambda x: (_cube(x) ** 2).mean((1, 2)), (X,), (np.ones(N, np.float32),), MANY),
    "item": (lambda n: torch.ones(_size(n), _size(n), _size(n)), (torch.tensor(3),), (np.array(N),), MANY),
    "item_inside": (
        lambda n: torch.ones(_size(n), 2 * _size(n)).sort()[0].sum(),
        (torch.tensor(3),),
        (np.array(1 << 61),),
        MANY,
    ),
    "repeats": (
        lambda n: torch.arange(5).repeat_interleave(n),
        (torch.tensor([1, 2, 0, 1, 3]),),
        (np.array([1 << 62, 1 << 62, 1 << 62, 1 << 62, 3]),),
        "9223372036854775807 elements or more",
    ),
    "dense_copies": (
        lambda *x: torch.stack([t[0, 0] for t in x]),
        (BYTES,) * 5,
        (np.broadcast_to(np.int8(1), (MOST, MOST)),) * 5,
        f"dense copies of the inputs take {MANY}",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("sizes")
    entries: dict[str, Any] = {}
    for name, (function, inputs, _, _) in CASES.items():
        dims = {0: ROWS} if inputs[0] is X else {0: ROWS, 1: COLUMNS} if inputs[0] is BYTES else {}
        entries[name] = (Call1(function).eval(), inputs, None, ((dims,) * len(inputs),))
    mycc.compile(entries, out=folder / "sizes.pkg")
    return mycc.load(folder / "sizes.pkg")


@pytest.mark.parametrize("name", CASES)
def test_what_is_too_large_is_an_error(model: Any, name: str) -> None:
    function, inputs, large, error = CASES[name]
    with pytest.raises(RunError) as caught:
        model.entry(name)(*large)
    assert str(caught.value).startswith("out of memory: ")
    assert error in str(caught.value)
    got, want = model.entry(name)(*inputs), function(*inputs)
    torch.testing.assert_close(got, want)
