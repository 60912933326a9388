"""Reductions of many elements: as exact as torch's pairwise sums, the same bits at any number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch

from ..helpers.programs import Call1
from ..helpers.sources import kernel_sources


class Sums(torch.nn.Module):
    """Sums of long rows, of long columns, of all, over the middle, and a softmax over the middle."""

    def forward(self, rows: torch.Tensor, columns: torch.Tensor, cube: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return rows.sum(-1), columns.sum(0), columns.sum(), cube.mean(1), cube.var(1), cube.sum()


INPUTS = ((3, 70001), (65536, 5), (3, 700, 130))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mycc.compile(Sums(), inputs(0), out=tmp_path_factory.mktemp("sums") / "sums.pkg", verify=False, target="cpu")


def inputs(seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator) for shape in INPUTS)


def results(package: Path, threads: int, given: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    model: Any = mycc.load(package, threads=threads)
    return [np.asarray(r) for r in model(*given)]


def test_errors_of_long_sums(package: Path) -> None:
    """Over several inputs the mean error is at most twice eager's, and a rounding."""
    errors, others, sizes = [], [], []
    for seed in range(6):
        given = inputs(seed)
        eager, want = Sums()(*given), [w.numpy() for w in Sums()(*(x.double() for x in given))]
        errors.append([np.abs(g - w).max() for g, w in zip(results(package, 2, given), want, strict=True)])
        others.append([np.abs(e.double().numpy() - w).max() for e, w in zip(eager, want, strict=True)])
        sizes.append([np.abs(w).max() for w in want])
    allowed = 2 * np.mean(others, 0) + 2e-7 * np.mean(sizes, 0)
    assert (np.mean(errors, 0) <= allowed).all(), f"{np.mean(errors, 0)} > {allowed}"


def test_bits_do_not_depend_on_threads(package: Path) -> None:
    given = inputs(7)
    one = results(package, 1, given)
    for threads in (2, 3, 5):
        for a, b in zip(one, results(package, threads, given), strict=True):
            np.testing.assert_array_equal(a, b)


def test_streams_meet_every_element_once(tmp_path: Path) -> None:
    """Sums of integers, exact, of rows of four streams and more, and of columns in groups that are not full."""
    shapes = {(64, 65536): -1, (64, 70001): -1, (1, 9000001): -1}
    shapes |= {(2, rows, n): 1 for rows, n in ((17, 1030), (67, 130), (128, 40), (131, 127), (1000, 8), (1000, 1024))}

    def reductions(dim: int) -> Any:
        return lambda x: (x.sum(dim), x.to(torch.int64).sum(dim), x.amax(dim), (x > 998).any(dim))

    inputs = {f"e{i}": (torch.randint(0, 1000, shape).float(), dim) for i, (shape, dim) in enumerate(shapes.items())}
    entries = {name: (Call1(reductions(dim)), (x,)) for name, (x, dim) in inputs.items()}
    model = mycc.load(mycc.compile(entries, out=tmp_path / "streams.pkg", verify=False))
    for name, (x, dim) in inputs.items():
        wanted = (x.double().sum(dim).float(), *reductions(dim)(x)[1:])
        for got, want in zip(model.entry(name)(x), wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want, rtol=2e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_indices_in_long_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    """The first of equal best values, wherever in the row; NaN before all others."""

    def given(columns: int) -> torch.Tensor:
        x = torch.randn(8, columns).round()
        x[1, columns // 2], x[1, -3], x[2], x[3], x[4, 400], x[4, 500] = torch.nan, torch.nan, -torch.inf, 1, 9, 9
        x[5, -1], x[6], x[7, 300] = 9, torch.nan, -torch.inf
        return x.to(dtype) if dtype.is_floating_point else x.nan_to_num(3, 5, -5).to(dtype)

    def best(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.argmax(-1), x.argmin(-1), *x.max(-1), *x.min(-1)

    inputs = {f"rows_of_{n}": given(n) for n in (600, 777, 1024, 5000)}
    entries = {name: (Call1(best), (x,)) for name, x in inputs.items()}
    model = mycc.load(mycc.compile(entries, out=tmp_path / "places.pkg", verify=False))
    for name, x in inputs.items():
        for got, want in zip(model.entry(name)(x), best(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_indices_in_nchw(dtype: torch.dtype, tmp_path: Path) -> None:
    """Planes that lie far apart: the first of equal best values, NaN before all others."""
    x = torch.randn(2, 21, 150003).round()
    x[0, 4, :9], x[0, 20, 70000], x[1, :, 8192], x[1, 3, -1], x[1, 0, 8191:8194] = (
        torch.nan,
        9,
        -torch.inf,
        9,
        torch.inf,
    )
    x = x.to(dtype)

    def best(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.argmax(1), x.argmin(1), *x.max(1)

    path = mycc.compile(Call1(best), (x,), out=tmp_path / "planes.pkg", verify=False, target="cpu")
    for got, want in zip(mycc.load(path, threads=2)(x), best(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=0, atol=0, equal_nan=True)


def test_norms_of_one_element(tmp_path: Path) -> None:
    """There is no loop to reduce over."""
    entries = {}
    for name, shape in {"one": (1,), "none": (0, 1), "rows": (3, 1)}.items():
        entries[name] = (Call1(lambda x: torch.native_layer_norm(x, (1,), None, None, 1e-5)), (torch.randn(shape),))
    model = mycc.load(mycc.compile(entries, out=tmp_path / "ones.pkg", verify=False))
    for name, (call, (x,)) in entries.items():
        for got, want in zip(model.entry(name)(x), call(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want)


#: columns, rows of several pieces, rows far from their mean; dimension, and the shape
VARIANCES = {
    "columns": ((0,), (4096, 80)),
    "channels": ((0, 2, 3), (24, 6, 60, 60)),
    "rows": ((1,), (5, 73728)),
    "columns apart": ((0, 2), (64, 96, 33)),
    "columns read once": ((1,), (3, 1024, 70)),
}


def test_variances_in_pieces(tmp_path: Path) -> None:
    """Within some roundings of float64, which eager sums them in; the same bits at any number of threads."""

    def spread(dims: tuple[int, ...]) -> Any:
        return lambda x: (*torch.var_mean(x, dims), x.std(dims, keepdim=True))

    inputs = {name: (torch.randn(shape) * 3 + 50, dims) for name, (dims, shape) in VARIANCES.items()}
    entries = {f"e{i}": (Call1(spread(dims)), (x,)) for i, (x, dims) in enumerate(inputs.values())}
    path = mycc.compile(entries, out=tmp_path / "variances.pkg", verify=False)
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for i, (name, (x, dims)) in enumerate(inputs.items()):
        found, again = (model.entry(f"e{i}")(x) for model in models)
        for got, other, want in zip(found, again, spread(dims)(x.double()), strict=True):
            assert torch.equal(torch.as_tensor(got), torch.as_tensor(other))
            errors = (torch.as_tensor(got).double() / want - 1).abs()
            assert errors.max() < 6e-7, name
            assert errors.mean() < 1.5e-7, name


#: what a column holds: far from 0, on its way up, one outlier in front
LEVELS = {
    "far": lambda x: x + 300,
    "rising": lambda x: x * 0.1 + torch.arange(x.shape[1])[:, None],
    "first": lambda x: torch.cat([x[:, :1] + 1e4, x[:, 1:]], 1),
}
#: rows that are not even, one more than the last sum of them, wide ones; 16-bit elements
SPREADS = {(17, 101, 208): torch.float32, (16, 65, 1024): torch.float32, (40, 300, 128): torch.bfloat16}


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_variances_in_one_reading(target: str, tmp_path: Path) -> None:
    """As exact as two readings, NaN where an element is none or infinite; the same bits at any number of threads."""
    forms = {"variance": lambda x: x.var(1), "deviation": lambda x: (1 - x).std(1, correction=0)}
    inputs = {}
    for i, (shape, dtype) in enumerate(SPREADS.items()):
        x = torch.randn(shape)
        x[3, 7, 5], x[4, 8, 6] = torch.inf, torch.nan
        inputs |= {f"{name}_{i}": change(x).to(dtype) for name, change in LEVELS.items()}
    calls = {f"{form}_{name}": (f, x) for form, f in forms.items() for name, x in inputs.items()}
    entries = {name: (Call1(lambda x, f=f: f(x.float())), (x,)) for name, (f, x) in calls.items()}
    path = mycc.compile(entries, out=tmp_path / "spreads.pkg", verify=False, target=target)
    assert sum(text.count("welford_in_order") for text in kernel_sources(path)) >= len(forms) * len(SPREADS)
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for name, (f, x) in calls.items():
        got, other = (torch.as_tensor(model.entry(name)(x)) for model in models)
        torch.testing.assert_close(got, other, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(got.double(), f(x.double()), rtol=5e-6, atol=0, equal_nan=True)


def test_norms_of_groups_channels_last(tmp_path: Path) -> None:
    """Moments of channels, of pieces of them where there are many places, merged into those of groups."""

    def norm(x: torch.Tensor) -> torch.Tensor:
        last = torch.nn.functional.group_norm(x.permute(0, 3, 1, 2), 8)
        return torch.nn.functional.silu(last).permute(0, 2, 3, 1)

    levels = torch.arange(80) * 0.5  # channels of a group that lie apart
    inputs = {"small": torch.randn(2, 7, 7, 80) + levels, "large": torch.randn(2, 64, 48, 80) + levels}
    inputs["equal"] = torch.full((1, 64, 64, 80), 0.1)
    for name, shape in {"wide": (2, 96, 128, 128), "odd": (1, 80, 80, 72), "many": (1, 64, 64, 320)}.items():
        inputs[name] = torch.randn(shape) + torch.arange(shape[-1]) * 0.5
    entries = {name: (Call1(norm), (x,)) for name, x in inputs.items()}
    path = mycc.compile(entries, out=tmp_path / "groups.pkg", verify=False)
    models = [mycc.load(path, threads=threads) for threads in (1, 3)]
    for name, x in inputs.items():
        found, again = (torch.as_tensor(model.entry(name)(x)) for model in models)
        assert torch.equal(found, again)
        want = norm(x.double())
        assert (found - want).abs().max() <= 2 * (norm(x) - want).abs().max() + 1e-6, name


def test_deviations_of_equal_elements(tmp_path: Path) -> None:
    """What is rounded makes no square negative."""
    inputs = {f"of_{n}": torch.full((4096, 32), value) for n, value in enumerate((0.1, 3.3e7, 1e-30, 0.0))}
    entries = {name: (Call1(lambda x: x.std(0)), (x,)) for name, x in inputs.items()}
    model = mycc.load(mycc.compile(entries, out=tmp_path / "equal.pkg", verify=False))
    for name, x in inputs.items():
        assert (torch.as_tensor(model.entry(name)(x)) <= 4e-6 * x[0]).all(), name
