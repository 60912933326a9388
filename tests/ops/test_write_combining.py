"""Results far larger than the caches whose rows are no whole lines: they are gathered, and written in whole lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
import torch.nn.functional as F

from ..helpers.programs import Call1

BYTES = 1 << 24  # results from here on

MAPS = {
    "pad": lambda x: F.pad(x, (1, 2, 1, 1)),
    "reflect": lambda x: F.pad(x, (3, 3, 2, 2), mode="reflect"),
    "flip": lambda x: x.flip(-1) + 1,
    "cut": lambda x: x[..., 1:-1, 2:] * 2,
    "joined": lambda x: torch.cat([x, x[..., :5], x.flip(-1)], -1),
    "joined_nchw_maps": lambda x: torch.cat([x, x * 2], 1),
    "two_results": lambda x: (F.pad(x, (1, 0)), F.pad(x, (0, 1)) + 1),
    "rows_of_planes": lambda x: F.pad(x.permute(1, 0, 2, 3), (1, 1)),
}
REDUCTIONS = {
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "cumsum": lambda x: x.cumsum(-1),
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "max_pool": lambda x: F.max_pool2d(x, (1, 2), (1, 1)),
    "with_places": lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True),
}


def planes(dtype: torch.dtype, width: int) -> torch.Tensor:
    """Planes of 21 rows, enough of them for a result of BYTES."""
    count = BYTES // (4 * 19 * (width - 2) * dtype.itemsize) + 1
    generator = torch.Generator().manual_seed(3)
    if not dtype.is_floating_point:
        return torch.randint(0, 99, (4, count, 21, width), generator=generator).to(dtype)
    return torch.randn(4, count, 21, width, generator=generator).to(dtype)


def check(
    function: Callable[..., Any], x: torch.Tensor, tmp_path: Path, target: str, compare: Callable[..., None]
) -> None:
    """Compares the results, which are the same for any number of threads."""
    path = mycc.compile(Call1(function), (x,), out=tmp_path / "large.pkg", verify=False, target=target)
    alone, together = (mycc.load(path, threads=threads)(x) for threads in (1, 2))
    wanted = function(x) if not x.is_floating_point() else function(x.double())
    several = isinstance(wanted, tuple)
    for got, again, want in zip(*((r if several else (r,)) for r in (alone, together, wanted)), strict=True):
        got = torch.as_tensor(got)
        assert got.nbytes >= BYTES
        assert torch.equal(got, torch.as_tensor(again))
        compare(got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("name", MAPS)
def test_moved_rows(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    def same(got: torch.Tensor, want: torch.Tensor) -> None:
        assert torch.equal(got, want.to(dtype))

    x = planes(dtype, 45)
    whole = x.round() if dtype.is_floating_point else x
    check(MAPS[name], whole, tmp_path, "cpu", same)


LONG = {
    "tanh": (torch.tanh, (5 << 20,)),
    "log_softmax": (lambda x: x.log_softmax(-1), (84, 50257)),
    "padded": (lambda x: F.pad(x, (5, 3), mode="reflect"), (2, 2100000)),
    "centred": (lambda x: x - x.mean(-1, keepdim=True), (84, 50257)),
    "and_a_tail": (lambda x: torch.cat([x * 2, x[..., :3] + 1], -1), (84, 50257)),
    "scaled": (lambda x: F.pad(x * 2, (1, 0)), (84, 50257)),
}


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v2"])
@pytest.mark.parametrize("name", LONG)
def test_long_rows_that_begin_anywhere(name: str, target: str, tmp_path: Path) -> None:
    def near(got: torch.Tensor, want: torch.Tensor) -> None:
        torch.testing.assert_close(got.double(), want.double(), rtol=3e-6, atol=3e-6)

    function, shape = LONG[name]
    check(function, torch.randn(shape, generator=torch.Generator().manual_seed(5)), tmp_path, target, near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64], ids=str)
def test_selected_elements(dtype: torch.dtype, tmp_path: Path) -> None:
    """More of them than the caches hold, and few."""
    x = (torch.arange(BYTES * 3 // dtype.itemsize) % 101).to(dtype)
    for least in (-1, 30, 100):
        mask = torch.arange(len(x)) * 7919 % 101 > least
        path = mycc.compile(Call1(torch.masked_select), (x, mask), out=tmp_path / "selected.pkg", verify=False)
        assert torch.equal(torch.as_tensor(mycc.load(path)(x, mask)), x[mask])


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v2"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduced_rows(name: str, target: str, tmp_path: Path) -> None:
    def near(got: torch.Tensor, want: torch.Tensor) -> None:
        torch.testing.assert_close(got.double(), want.double(), rtol=3e-6, atol=3e-6)

    check(REDUCTIONS[name], planes(torch.float32, 37), tmp_path, target, near)
