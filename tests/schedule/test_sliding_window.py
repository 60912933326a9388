"""Which reductions are walks over windows that overlap, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mycc.compiler.ir.nodes import Reduce
from mycc.compiler.ir.plans.loop import SlidingWindows
from mycc.compiler.schedule.loops.collapse import collapse
from mycc.compiler.schedule.loops.sliding_window import find_sliding_windows
from torch import nn
from torch.nn import functional as F

from ..helpers.programs import scheduled

Case = Callable[[torch.Tensor], torch.Tensor]
MAPS = torch.randn(2, 5, 20, 40)


def windows_of(case: Case, x: torch.Tensor = MAPS) -> SlidingWindows | None:
    (node,) = scheduled(case, x).program.nodes
    return find_sliding_windows(collapse(node)) if isinstance(node, Reduce) else None


def weighted(conv: nn.Module, x: torch.Tensor = MAPS) -> SlidingWindows | None:
    nodes = [collapse(n) for n in scheduled(lambda m, x: m(x), x, parts=[conv]).program.nodes if isinstance(n, Reduce)]
    return find_sliding_windows(nodes[0]) if len(nodes) == 1 else None


def last(case: Case) -> Case:
    return lambda x: case(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def test_windows_down_the_rows() -> None:
    found = windows_of(lambda x: F.max_pool2d(x, 3, 2, 1))
    assert found is not None
    assert (found.taps, found.step, found.pad, found.open) == (3, 2, 1, 1)
    assert found.row.extent.constant == 10
    assert found.lanes.extent.constant == 20
    assert found.inside == (1, 20)  # at the right, no window of an even row reads past it
    assert [v.extent.constant for v in found.inner.rdims] == [3]


def test_windows_along_the_rows() -> None:
    found = windows_of(last(lambda x: F.avg_pool2d(x, 5, 1, 2)), torch.randn(2, 20, 30, 24))
    assert found is not None
    assert (found.taps, found.step, found.pad, found.open) == (5, 1, 2, 4)
    assert found.row.extent.constant == 30
    assert found.inside == (0, 24)
    assert [v.extent.constant for v in found.inner.rdims] == [5]


def test_lanes_whose_windows_lie_inside() -> None:
    found = windows_of(lambda x: F.max_pool2d(x, 5, 1, 2))
    assert found is not None
    assert found.inside == (2, 38)
    found = windows_of(lambda x: F.max_pool2d(x, 5, 1, 0))
    assert found is not None
    assert found.inside == (0, 36)
    assert found.size is None


@pytest.mark.parametrize(
    "case",
    [
        lambda x: F.max_pool2d(x, 2),  # side by side
        lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2),
        lambda x: F.max_pool2d(x, 9, 1, 4),  # more than registers hold
        lambda x: F.max_pool2d(x[..., :12], 3, 1, 1),  # shorter than a vector
        lambda x: x.sum(-1),
    ],
)
def test_others_are_none(case: Case) -> None:
    assert windows_of(case) is None


def test_taps_with_weights() -> None:
    found = weighted(nn.Conv2d(5, 5, (3, 5), (2, 1), (1, 2), groups=5))
    assert found is not None
    assert found.weighted is not None
    assert (found.taps, found.step, found.pad, found.open) == (3, 2, 1, 1)
    assert found.inside == (2, 38)
    deep = weighted(nn.Conv3d(2, 4, 3, 1, 1, groups=2), torch.randn(1, 2, 6, 9, 20))
    assert deep is not None
    assert deep.weighted is not None
    assert [v.extent.constant for v in deep.inner.rdims] == [3, 3]


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(5, 5, 13, 1, 6, groups=5),  # more windows than registers hold
        nn.Conv2d(5, 5, 3, 1, 2, 2, groups=5),
        nn.Conv2d(5, 5, (3, 45), 1, (1, 22), groups=5),  # more products than are unrolled
    ],
    ids=str,
)
def test_others_with_weights_are_none(conv: nn.Module) -> None:
    assert weighted(conv) is None
