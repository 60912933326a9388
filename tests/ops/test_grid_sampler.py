"""Samples of images between their pixels: all modes against torch in float64, with coordinates that are far or NaN."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

PADDINGS = tuple(itertools.product(("zeros", "border", "reflection"), (False, True)))
#: their reflections are rounding alone
FAR = (math.inf, -math.inf, 1e30, -1e30, 3e9)


class Sampled(nn.Module):
    """One mode with every padding."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: Tensor, grid: Tensor) -> list[Tensor]:
        return [F.grid_sample(x, grid, self.mode, padding, align) for padding, align in PADDINGS]


def images(*sizes: int, lead: int = 2) -> tuple[Tensor, Tensor]:
    """x [lead, 5, sizes] with an infinite pixel, and a grid from -1.4 to 1.4 of [lead, 4, .., 9] places."""
    draw = torch.Generator().manual_seed(len(sizes))
    x = torch.randn(lead, 5, *sizes, generator=draw)
    places = (4,) * (len(sizes) - 1)
    return x, torch.rand(lead, *places, 9, len(sizes), generator=draw) * 2.8 - 1.4


def check(path: Path, mode: str, x: Tensor, grid: Tensor, atol: float = 2e-5) -> None:
    """Compares all paddings with torch's in float64; where coordinates are huge, reflections are left out."""
    far = (grid.abs() > 1e6).any(-1).unsqueeze(1)
    want = Sampled(mode)(x.double(), grid.double())
    found = mycc.load(path, threads=2)(x, grid)
    for (padding, align), a, b in zip(PADDINGS, found, want, strict=True):
        kept = ~far.expand_as(b) if padding == "reflection" else torch.ones_like(b, dtype=torch.bool)
        np.testing.assert_allclose(a[kept].double(), b[kept], rtol=0, atol=atol, err_msg=f"{padding} {align}")


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [
        ("bilinear", (7, 21)),
        ("nearest", (7, 21)),
        ("bicubic", (7, 21)),
        ("bilinear", (3, 6, 5)),
        ("nearest", (3, 6, 5)),
    ],
    ids=str,
)
def test_modes(mode: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    x, grid = images(*sizes)
    path = mycc.compile(Sampled(mode), (x, grid), out=tmp_path / "m.pkg", verify=False, target="cpu")
    check(path, mode, x, grid)
    bad = grid.clone()
    # of three dimensions NaN and infinities are not alike in torch's own kernels
    for i, value in enumerate((math.nan, *FAR) if len(sizes) == 2 else FAR[2:]):
        bad[0, 0, ..., i, i % 2] = value
    x[0, 0, ..., 0, 0] = math.inf  # is not read from outside
    check(path, mode, x, bad)


@pytest.mark.slow  # test_modes runs the same kernels, of known sizes
def test_channels_last_and_dynamic_sizes(tmp_path: Path) -> None:
    class Last(Sampled):
        def forward(self, x: Tensor, grid: Tensor) -> list[Tensor]:
            return super().forward(x.permute(0, 3, 1, 2), grid)

    x, grid = images(7, 21)
    n, h, w, places = (torch.export.Dim(name, min=2, max=99) for name in ("n", "h", "w", "places"))
    path = mycc.compile(
        Last("bilinear"), (x.permute(0, 2, 3, 1).contiguous(), grid), out=tmp_path / "m.pkg", verify=False,
        target="cpu", dynamic_shapes={"x": {0: n, 1: h, 2: w}, "grid": {0: n, 2: places}},
    )  # fmt: skip
    for lead, sizes in ((2, (7, 21)), (3, (40, 2))):
        x, grid = images(*sizes, lead=lead)
        want = Sampled("bilinear")(x.double(), grid.double())
        for a, b in zip(mycc.load(path)(x.permute(0, 2, 3, 1).contiguous(), grid), want, strict=True):
            np.testing.assert_allclose(a.double(), b, rtol=0, atol=2e-5)
