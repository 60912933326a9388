"""Scans whose neighbours in memory are columns: lanes run across the steps; running sums whose lanes run along them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch.export import Dim

from ..helpers.sources import kernel_sources

SHAPES = [(3, 21, 37), (1, 67, 1085), (2, 8, 3, 16)]  # steps beside a group; columns beside a block; inner dimensions


class Running(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.cumsum(1),
            (x * 0.5).cumprod(1),
            *x.cummax(1),
            *x.cummin(1),
            (x > 0).cumsum(1),
            x.float().logcumsumexp(1),
        )


def _inputs(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randint(-4, 5, shape, generator=generator) * 0.5
    x[0, 5, ..., 1], x[0, :, ..., 2] = torch.nan, -torch.inf
    return x.to(dtype) if dtype.is_floating_point else x.nan_to_num(3, 4, -4).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_scans_over_columns(dtype: torch.dtype, tmp_path: Path) -> None:
    inputs = {f"case{i}": (_inputs(shape, dtype),) for i, shape in enumerate(SHAPES)}
    entries: dict[str, Any] = {name: (Running(), x) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "scans.pkg", verify=False, target="cpu")
    models = [mycc.load(path, threads=threads) for threads in (1, 2)]
    for name, (x,) in inputs.items():
        found, again = (list(model.entry(name)(x)) for model in models)
        for got, other, want in zip(found, again, Running()(x), strict=True):
            got, other = torch.as_tensor(got), torch.as_tensor(other)
            assert got.dtype == want.dtype
            assert torch.equal(got.nan_to_num(77), other.nan_to_num(77))
            limit = {torch.bfloat16: 1e-2}.get(want.dtype, 1e-5)
            torch.testing.assert_close(got, want, rtol=limit, atol=limit, equal_nan=True)


def test_any_number_of_columns(tmp_path: Path) -> None:
    model, x = Running(), torch.randn(2, 9, 40)
    shapes = {"x": {0: Dim("batch", min=1, max=64), 2: Dim("columns", min=1, max=4096)}}
    path = mycc.compile(model, (x,), dynamic_shapes=shapes, out=tmp_path / "scan.pkg", verify=False, target="cpu")
    package = mycc.load(path)
    for size in (1, 7, 16, 2070):
        x = torch.randn(3, 9, size)
        for got, want in zip(package(x), model(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_running_sums_of_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    """As near to exact sums as eager; infinities and NaN reach what comes behind them, and nothing else."""
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(*s, generator=generator).to(dtype) for s in ((3, 1024), (5, 197), (1, 5003), (2, 3, 8))]
    special = inputs[1].clone()
    special[0, 20], special[1, 35], special[2, 196], special[3, ::40] = torch.inf, torch.nan, -torch.inf, -0.0
    model = Sums()
    entries: dict[str, Any] = {f"case{i}": (model, (x,)) for i, x in enumerate([*inputs, special])}
    path = mycc.compile(entries, out=tmp_path / "sums.pkg", verify=False, target="cpu")
    sources = kernel_sources(path)
    assert sum("running_sum" in s for s in sources)
    models = [mycc.load(path, threads=threads) for threads in (1, 2)]
    for name, (_, (x,)) in entries.items():
        got, again = (torch.as_tensor(m.entry(name)(x)) for m in models)
        exact, eager = x.double().cumsum(-1), x.cumsum(-1)
        assert torch.equal(got.nan_to_num(77), again.nan_to_num(77))
        assert torch.equal(got.isnan(), exact.isnan())
        assert torch.equal(got.isinf(), exact.isinf())
        finite = exact.isfinite()
        error, allowed = (got.double() - exact)[finite].abs(), (eager.double() - exact)[finite].abs()
        assert error.max() <= 2 * allowed.max() + 1e-7


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v2"])
def test_running_sums_of_integers(target: str, tmp_path: Path) -> None:
    """Exact, and around the ends of int64 as eager's; of masks and narrow integers too."""
    generator = torch.Generator().manual_seed(4)
    numbers = torch.randint(-(2**62), 2**62, (5, 197), generator=generator)
    inputs = [numbers, numbers[:, :16], numbers[:2].reshape(1, -1), numbers % 7 > 3, (numbers % 200).to(torch.uint8)]
    inputs += [(numbers % 1000).to(torch.int32)[:, :29]]
    entries: dict[str, Any] = {f"case{i}": (Sums(), (x,)) for i, x in enumerate(inputs)}
    path = mycc.compile(entries, out=tmp_path / "sums.pkg", verify=False, target=target)
    sources = kernel_sources(path)
    assert sum(s.count("running_sum") for s in sources) >= len(inputs)
    model = mycc.load(path)
    for name, (_, (x,)) in entries.items():
        assert torch.equal(torch.as_tensor(model.entry(name)(x)), x.cumsum(-1))


class Products(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumprod(-1)


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(-1)


def test_running_products_of_rows(tmp_path: Path) -> None:
    """As eager's, which are float64's too; infinities, zeros and NaN reach what comes behind them, and nothing else."""
    generator = torch.Generator().manual_seed(3)
    inputs = [1 + 0.1 * torch.randn(*s, generator=generator) for s in ((3, 1024), (5, 197), (1, 5003), (2, 3, 8))]
    special = inputs[1].clone()
    special[0, 20], special[1, 35], special[2, 9], special[2, 150] = torch.inf, torch.nan, 0.0, -torch.inf
    special[3, ::40], special[4] = -0.0, torch.finfo(torch.float32).max
    entries: dict[str, Any] = {f"case{i}": (Products(), (x,)) for i, x in enumerate([*inputs, special])}
    path = mycc.compile(entries, out=tmp_path / "products.pkg", verify=False, target="cpu")
    sources = kernel_sources(path)
    assert sum("running_product" in s for s in sources)
    model = mycc.load(path)
    for name, (_, (x,)) in entries.items():
        torch.testing.assert_close(model.entry(name)(x), x.cumprod(-1), rtol=2e-7, atol=1e-44, equal_nan=True)
