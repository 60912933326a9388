"""Pools with ceil_mode over dynamic sizes: torch's own graph holds for the example's sizes only."""

from __future__ import annotations

from pathlib import Path

import mycc
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim


class Pools(nn.Module):
    """Windows that span stride and padding, that just do not, and that lie apart; dilated ones, and sums of powers."""

    def forward(self, line: Tensor, plane: Tensor, solid: Tensor) -> list[Tensor]:
        return [
            F.max_pool1d(line, 3, 2, 1, ceil_mode=True),
            F.max_pool1d(line, 2, 3, 1, 2, ceil_mode=True),
            *F.max_pool1d(line, 2, 3, 1, ceil_mode=True, return_indices=True),
            F.avg_pool1d(line, 3, 3, 1, ceil_mode=True),
            F.avg_pool1d(line, 2, 3, 1, ceil_mode=True, count_include_pad=False),
            F.max_pool2d(plane, 3, 2, 1, ceil_mode=True),
            F.max_pool2d(plane, 4, 4, 2, ceil_mode=True),
            F.max_pool2d(plane, (2, 3), 3, 1, 2, ceil_mode=True),
            *F.max_pool2d(plane, 2, 3, 1, ceil_mode=True, return_indices=True),
            F.avg_pool2d(plane, 3, 3, 1, ceil_mode=True),
            F.avg_pool2d(plane, 2, 3, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(plane, 4, 4, 2, ceil_mode=True, divisor_override=3),
            F.lp_pool2d(plane, 2, 3, 4, ceil_mode=True),
            F.max_pool3d(solid, 2, 3, 1, ceil_mode=True),
            *F.max_pool3d(solid, 3, 3, 1, ceil_mode=True, return_indices=True),
            F.avg_pool3d(solid, 3, 3, 1, ceil_mode=True),
        ]


def test_every_size(tmp_path: Path) -> None:
    h, w = Dim("h", min=4, max=20), Dim("w", min=4, max=20)

    def inputs(rows: int, columns: int) -> tuple[Tensor, ...]:
        return torch.randn(1, 2, rows), torch.randn(1, 2, rows, columns), torch.randn(1, 2, 5, rows, columns)

    torch.manual_seed(0)
    shapes = ({2: h}, {2: h, 3: w}, {3: h, 4: w})
    path = mycc.compile(Pools(), inputs(9, 8), out=tmp_path / "pools.pkg", dynamic_shapes=shapes)
    package = mycc.load(path)
    for rows in range(4, 21):
        given = inputs(rows, 24 - rows)
        for own, eager in zip(package(*given), Pools()(*given), strict=True):
            torch.testing.assert_close(own, eager)
