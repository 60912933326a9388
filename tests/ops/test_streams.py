"""Reductions that read several places of memory in turn: rows that go together, rows of columns that keep their
places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch

from ..helpers.programs import Call1
from ..helpers.sources import kernel_sources


def reductions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sum(-1), x.amax(-1), x.prod(-1), (x > 0).any(-1), x.square().mean(-1) + x[..., 0]


def places(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.argmax(-1), x.argmin(-1), *x.max(-1), *x.min(-1)


#: rows that fill all streams, some, none; pieces that are whole and others; several loops over rows; short rows of more
#: memory than lies in the caches, which are read one after the other
SHAPES = [(41, 300), (4, 16), (5, 17), (7, 2000), (6, 3, 555), (257, 64), (3, 5, 7, 259), (18001, 31), (3, 2000, 101)]


def check(
    path: Path, inputs: dict[str, torch.Tensor], functions: dict[str, Callable[..., Any]], dtype: torch.dtype
) -> None:
    """The same bits with one thread and with three; close to what float64 gives."""
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for name, x in inputs.items():
        alone, together = (model.entry(name)(x) for model in models)
        for got, again, want in zip(alone, together, functions[name](x.double()), strict=True):
            assert torch.equal(torch.as_tensor(got), torch.as_tensor(again))
            limit = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
            np.testing.assert_allclose(torch.as_tensor(got).double(), want.double(), rtol=limit, atol=100 * limit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_reductions_of_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    """The same bits with one thread and with three; close to sums of float64."""
    generator = torch.Generator().manual_seed(5)
    inputs = {f"case{i}": torch.randn(s, generator=generator).to(dtype) for i, s in enumerate(SHAPES)}
    entries: dict[str, Any] = {name: (Call1(reductions), (x,)) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "rows.pkg", verify=False)
    check(path, inputs, dict.fromkeys(inputs, reductions), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_indices_in_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    """The first of equal values, wherever it lies; NaN before all others."""
    generator = torch.Generator().manual_seed(6)
    inputs = {f"case{i}": torch.randint(-9, 9, s, generator=generator).to(dtype) for i, s in enumerate(SHAPES)}
    if dtype.is_floating_point:
        for x in inputs.values():
            flat = x.view(-1, x.shape[-1])
            flat[0, 3], flat[0, 9], flat[2, -1], flat[3] = torch.nan, torch.nan, torch.nan, -torch.inf
    entries: dict[str, Any] = {name: (Call1(places), (x,)) for name, x in inputs.items()}
    model = mycc.load(mycc.compile(entries, out=tmp_path / "places.pkg", verify=False), threads=2)
    for name, x in inputs.items():
        for got, want in zip(model.entry(name)(x), places(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want, rtol=0, atol=0, equal_nan=True)


#: runs of memory that lie far apart: whole pieces and others, one loop around and two
RUNS = {(5, 3, 1030): (0, 2), (8, 2, 4096): (0, 2), (3, 2, 1024): (0, 2), (3, 2, 5, 2, 1290): (0, 2, 4)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_reductions_of_runs(dtype: torch.dtype, tmp_path: Path) -> None:
    """Statistics of channels: the same bits with one thread and with three; close to those of float64."""
    generator = torch.Generator().manual_seed(7)
    inputs = {f"case{i}": torch.randn(s, generator=generator).to(dtype) for i, s in enumerate(RUNS)}

    def statistics(dims: tuple[int, ...]) -> Any:
        return lambda x: (x.sum(dims), x.amax(dims), x.var(dims), (x > 2).any(-1).any(0))

    functions = dict(zip(inputs, map(statistics, RUNS.values()), strict=True))
    entries: dict[str, Any] = {name: (Call1(functions[name]), (x,)) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "runs.pkg", verify=False)
    assert any("piece = 1024;" in text for text in kernel_sources(path))
    check(path, inputs, functions, dtype)


def test_any_number_of_rows(tmp_path: Path) -> None:
    x = torch.randn(9, 100)
    batch = torch.export.Dim("batch", min=1, max=5000)
    path = mycc.compile(Call1(places), (x,), out=tmp_path / "dynamic.pkg", dynamic_shapes={"inputs": ({0: batch},)})
    model = mycc.load(path)
    for rows in (1, 3, 4, 6, 700, 4999):
        x = torch.randint(-9, 9, (rows, 100)).float()
        for got, want in zip(model(x), places(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want, rtol=0, atol=0)


#: a few large rows and many small ones, whose accumulators are in registers or in a cache; images, channels last
COLUMNS = {
    (9001, 64): (0,), (40, 257, 256): (1,), (700, 4096): (0,), (3, 901, 1008): (1,), (21000, 16): (0,),
    (5, 80, 80, 96): (1, 2),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_reductions_of_columns_in_order(dtype: torch.dtype, tmp_path: Path) -> None:
    """Rows of so many bytes are read as one stream: the same bits with one thread and with three; close to float64."""
    generator = torch.Generator().manual_seed(8)
    inputs = {f"case{i}": torch.randn(s, generator=generator).to(dtype) for i, s in enumerate(COLUMNS)}

    def statistics(dims: tuple[int, ...]) -> Any:
        return lambda x: (
            x.mean(dims),
            x.amax(dims),
            (x * x).sum(dims),
            x.var(dims),
            x.count_nonzero(dims),
            (x > 2).any(dims),
        )

    functions = dict(zip(inputs, map(statistics, COLUMNS.values()), strict=True))
    entries: dict[str, Any] = {name: (Call1(functions[name]), (x,)) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "columns.pkg", verify=False)
    assert any("rows_in_order<" in text for text in kernel_sources(path))
    check(path, inputs, functions, dtype)
    x = inputs["case0"]
    x[5, 7], x[8999, 9], x[0, 11] = torch.nan, torch.nan, torch.inf
    for got, want in zip(mycc.load(path).entry("case0")(x), functions["case0"](x.double()), strict=True):
        limit = 2e-2 if dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(torch.as_tensor(got).double(), want.double(), rtol=limit, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2, 8003, 137), torch.float32), ((9000, 240), torch.float32), ((80, 66, 448), torch.float32),
        ((700, 4096), torch.float32), ((9000, 244), torch.float32),
        ((9001, 480), torch.bfloat16), ((2, 8003, 137), torch.float64),
    ],
    ids=str,
)  # fmt: skip
def test_indices_of_columns(shape: tuple[int, ...], dtype: torch.dtype, tmp_path: Path) -> None:
    """So many bytes that rows are one stream, or come from several places in turn: the first of equal values all the
    same."""

    def best(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *x.max(-2), *x.min(-2), x.argmax(-2)

    x = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(7)).to(dtype)
    rows = x.view(-1, *shape[-2:])[0]
    rows[:, 3], rows[:, 4], rows[shape[-2] // 2, 5], rows[shape[-2] - 1, 5] = (
        -torch.inf,
        torch.nan,
        torch.nan,
        torch.nan,
    )
    rows[:, 6], rows[-1, 6], rows[:, 7], rows[shape[-2] // 4 :, 7] = 0, 1, 0, 1
    path = mycc.compile(Call1(best), (x,), out=tmp_path / "columns.pkg", verify=False)
    for threads in (1, 2):
        for got, want in zip(mycc.load(path, threads=threads)(x), best(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want, rtol=0, atol=0, equal_nan=True)


def test_rows_of_constants(tmp_path: Path) -> None:
    """Rows that read no memory have no streams."""
    model = mycc.load(
        mycc.compile(lambda x: torch.ones_like(x)[:, :77].mean(-1), (torch.ones(30, 200),), out=tmp_path / "m.pkg")
    )
    assert torch.equal(model(torch.ones(30, 200)), torch.ones(30))
