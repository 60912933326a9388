"""The order of loops of reductions and maps that look rows up: lanes lie along what is stored side by side."""

from __future__ import annotations

from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.ir.index import ONE
from mycc.compiler.ir.nodes import Map, Reduce
from torch import Tensor, nn

from ..helpers.programs import Call1, scheduled

table, at, weight = torch.randn(50, 64), torch.randint(0, 50, (2, 9, 4)), torch.randn(2, 9, 4)


def looked_up(x: Tensor, at: Tensor) -> Tensor:
    """[2, 32, 9, 4]: 2 heads of 32 channels, channels first as grid_sample has them."""
    heads = x.t().reshape(2, 32, 50)
    return heads.gather(2, at.flatten(1)[:, None].expand(-1, 32, -1)).unflatten(2, (9, 4))


def weighted(x: Tensor, at: Tensor, weight: Tensor) -> Tensor:
    return (looked_up(x, at) * weight[:, None]).sum(-1).reshape(64, 9).t().contiguous()


def test_lanes_along_rows_that_are_looked_up(tmp_path: Path) -> None:
    inputs = (table, at, weight)
    (node,) = (n for n in scheduled(weighted, *inputs).program.nodes if isinstance(n, Reduce))
    loop = node.dims[-1]
    assert loop.extent.constant == 32
    assert all(store.index.coefficient(loop) == ONE for store in node.stores)
    mycc.compile(Call1(weighted).eval(), inputs, out=tmp_path / "m.pkg")
    want = weighted(table.double(), at, weight.double())
    for threads in (1, 2):
        found = mycc.load(tmp_path / "m.pkg", threads=threads)(*inputs)
        np.testing.assert_allclose(found.double(), want, rtol=1e-5, atol=1e-5)


def test_rows_read_side_by_side_stay_rows() -> None:
    """A sum along memory, stored in another order: the lanes stay along what is read."""
    (node,) = scheduled(lambda a: a.sum(-1).t().contiguous(), torch.randn(8, 16, 256)).program.nodes
    assert isinstance(node, Reduce)
    assert [v.extent.constant for v in node.dims] in ([8, 16], [128])


@pytest.mark.parametrize(
    "windows",
    [
        nn.Conv2d(12, 24, 3, padding=1, groups=12),  # lanes of 24 outputs would read 12 inputs, and weights far apart
        nn.Conv2d(32, 32, 9, padding=4, groups=32),
        nn.AvgPool2d(3, 2, 1),
    ],
)
def test_windows_along_rows_stay_rows(windows: nn.Module) -> None:
    """What follows wants its channels last: another kernel turns what was reduced along the rows."""
    channels = getattr(windows, "in_channels", 32)
    x = torch.randn(1, channels, 56, 56)
    nodes = scheduled(lambda w, a: torch.relu(w(a)).permute(0, 2, 3, 1).contiguous(), x, parts=(windows,)).program.nodes
    assert [type(n) for n in nodes] == [Reduce, Map]
    lanes = nodes[0].dims[-1]
    assert all(store.index.coefficient(lanes) == ONE for store in nodes[0].stores)
