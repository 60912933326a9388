"""Windows, pads and other choices by place, over rows longer than a vector: within, at both ends, behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from torch.nn import functional as F

Case = Callable[[torch.Tensor], Any]


class Cases(torch.nn.Module):
    def __init__(self, cases: list[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [case(x) for case in self.cases]


def last(case: Case) -> Case:
    """The same of images whose channels are last."""
    return lambda x: case(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def pools() -> Iterator[Case]:
    for kernel, stride, pad in (
        (2, 2, 0),
        (3, 2, 1),
        (3, 1, 1),
        (5, 1, 2),
        (7, 3, 2),
        (4, 2, 1),
        (9, 1, 4),
        (3, 3, 0),
        ((2, 5), (1, 4), (0, 2)),
        (8, 8, 0),
    ):
        yield lambda x, k=kernel, s=stride, p=pad: F.max_pool2d(x, k, s, p)
        yield lambda x, k=kernel, s=stride, p=pad: F.avg_pool2d(x, k, s, p)
        yield lambda x, k=kernel, s=stride, p=pad: F.avg_pool2d(torch.relu(x), k, s, p, count_include_pad=False)
        yield last(lambda x, k=kernel, s=stride, p=pad: F.max_pool2d(x, k, s, p))
        yield last(lambda x, k=kernel, s=stride, p=pad: F.avg_pool2d(x, k, s, p, count_include_pad=False) * 2)
    yield lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True)
    yield lambda x: F.max_pool2d(x, 3, 1, 2, dilation=2)
    yield lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)
    yield lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=2)
    yield lambda x: F.max_pool1d(x[0], 4, 3, 2)
    yield lambda x: F.max_pool3d(x, (1, 3, 3), 2, (0, 1, 1))
    yield lambda x: F.avg_pool3d(x, 3, 1, 1)
    for size in (1, 7, (6, 9), (5, None)):
        yield lambda x, n=size: F.adaptive_avg_pool2d(x, n)
        yield lambda x, n=size: F.adaptive_max_pool2d(x, n)


def close(got: Any, want: Any) -> None:
    got, want = (torch.utils._pytree.tree_leaves(t) for t in (got, want))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.double(), b.double(), rtol=2e-6, atol=1e-6)


def run(cases: list[Case], x: torch.Tensor, folder: Path) -> tuple[Any, Any]:
    """What the compiled cases give, the same at one and at three threads, and what torch gives."""
    model = Cases(cases)
    path = mycc.compile(model, (x,), out=folder / "cases.pkg", verify=False, target="cpu")
    found, again = (mycc.load(path, threads=n)(x) for n in (1, 3))
    for a, b in zip(*(torch.utils._pytree.tree_leaves(t) for t in (found, again)), strict=True):
        assert torch.equal(
            a.nan_to_num() if a.is_floating_point() else a, b.nan_to_num() if b.is_floating_point() else b
        )
    return found, model(x)


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("size", [(2, 3, 40, 133), (1, 33, 9, 32)], ids=str)
def test_pools(size: tuple[int, ...], part: int, tmp_path: Path) -> None:
    x = torch.randn(*size, generator=torch.Generator().manual_seed(5))
    fits = [case for case in pools() if _runs(case, x)][part::2]
    assert len(fits) > 10
    close(*run(fits, x, tmp_path))


def test_pools_of_bfloat16(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 20, 51, generator=torch.Generator().manual_seed(5)).bfloat16()
    cases: list[Case] = [lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 2)]
    got, want = run(cases, x, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def _runs(case: Case, x: torch.Tensor) -> bool:
    try:
        case(x)
    except RuntimeError:
        return False
    return True


def pads(dtype: torch.dtype) -> Iterator[Case]:
    value = True if dtype == torch.bool else 3
    for pad in ((1, 1, 1, 1), (3, 0, 0, 2), (-2, 17, 5, -1), (20, 20)):
        yield lambda x, p=pad: F.pad(x, p)
        yield lambda x, p=pad: F.pad(x, p, value=value)
    yield lambda x: F.pad(x, (0, 0, 2, 1))
    if dtype.is_floating_point:
        yield lambda x: F.pad(x * 2 + 1, (5, 2, 1, 0), value=-1.5)
        yield lambda x: F.pad(torch.relu(x), (2, 2))[..., 1:] * 2
        yield lambda x: F.pad(x, (3, 2, 1, 4), mode="reflect")
        yield lambda x: F.pad(x, (1, 18, 2, 0), mode="replicate")
        yield lambda x: F.pad(x, (4, 2, 1, 0), mode="circular")


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.bool, torch.int64],
    ids=str,
)
def test_pads(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randint(
        0, 2 if dtype == torch.bool else 90, (2, 3, 6, 37), generator=torch.Generator().manual_seed(6)
    ).to(dtype)
    got, want = run(list(pads(dtype)), x, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_infinities_and_nan_stay_in_their_windows(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 9, 40, generator=torch.Generator().manual_seed(7))
    x[0, 0, 0, 0], x[0, 0, 4, 39], x[0, 1, 8, 20] = torch.inf, torch.nan, -torch.inf
    cases: list[Case] = [
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        lambda x: F.pad(x, (1, 1, 1, 1)),
        lambda x: F.pad(x * 0, (1, 1)),
    ]
    close(*run(cases, x, tmp_path))


def resizes(dtype: torch.dtype) -> Iterator[Case]:
    """Larger, smaller, by parts of a pixel; rows shorter than a vector, and lookups that lie apart."""
    for size in ((40, 70), (7, 23)):
        for align in (False, True) if dtype == torch.float32 else (False,):
            yield lambda x, s=size, a=align: F.interpolate(x, s, mode="bilinear", align_corners=a)
            yield lambda x, s=size, a=align: F.interpolate(x, s, mode="bicubic", align_corners=a)
            yield last(lambda x, s=size, a=align: F.interpolate(x, s, mode="bilinear", align_corners=a))
        if dtype in (torch.float32, torch.uint8):
            yield lambda x, s=size: F.interpolate(x, s, mode="bilinear", antialias=True)
            yield lambda x, s=size: F.interpolate(x, s, mode="bicubic", antialias=True)
    yield lambda x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear")
    yield lambda x: F.interpolate(x[..., :1], (9, 3), mode="bilinear")
    if dtype == torch.float32:
        yield lambda x: F.interpolate(x[0], 90, mode="linear")
        yield lambda x: F.interpolate(x[None], (5, 9, 60), mode="trilinear")
        yield lambda x: F.interpolate(x, (40, 70), mode="bilinear").relu() + F.interpolate(x, (40, 70), mode="bicubic")
        yield lambda x: F.interpolate(x.abs(), (30, 70), mode="bilinear").argmax(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_resizes(dtype: torch.dtype, tmp_path: Path) -> None:
    x = (torch.randn(2, 3, 20, 35, generator=torch.Generator().manual_seed(8)) * 60).abs()
    x = (x / 60 if dtype.is_floating_point else x).to(dtype)
    got, want = run(list(resizes(dtype)), x, tmp_path)
    atol = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.uint8: 0}[dtype]
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.double(), b.double(), rtol=0, atol=atol, err_msg=str(i))


def test_long_rows_are_resized_in_blocks(tmp_path: Path) -> None:
    x = torch.randn(1, 3, 300, 300, generator=torch.Generator().manual_seed(9))
    close(*run([lambda x: F.interpolate(x, (300, 300), mode="bilinear")], x, tmp_path))


def test_lookups_by_tables(tmp_path: Path) -> None:
    """Along the lanes: near, far, backwards, in rows of one or two vectors and past them."""
    draw = torch.Generator().manual_seed(9)
    near, far = torch.arange(90) // 3, torch.randint(0, 35, (90,), generator=draw)
    x = torch.randn(2, 3, 20, 35, generator=draw)
    cases: list[Case] = [
        lambda x: (x * 2)[..., near] + x[..., near - 20],
        lambda x: x[..., far] + x.exp()[..., far[:50].sort().values].sum(-1, keepdim=True),
        lambda x: x[..., near.flip(0)],
        lambda x: x[..., :7][..., far % 7] + x[..., :16][..., far % 16] + x[..., :20][..., far % 20],
        lambda x: x.double()[..., near] - x.to(torch.int32)[..., near] + x.bfloat16()[..., near] + (x > 0)[..., near],
        lambda x: F.layer_norm(x, (35,))[..., near].softmax(-1),
    ]
    close(*run(cases, x, tmp_path))
