"""Images in channels-last memory keep it through shuffled channels, lookups of pixels, resizing and pooling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.nodes import Map, Reduce
from mycc.compiler.ir.program import Program
from mycc.compiler.lower.core.tensor import Strided, Tensor, channels_last_order, dense_strides, shape_of
from torch import nn
from torch.nn import functional as F

from ..helpers.programs import Call1, lowered

Function = Callable[[torch.Tensor], torch.Tensor]
IMAGE = torch.randn(2, 6, 10, 9, generator=torch.Generator().manual_seed(3))  # [n, h, w, c] in memory


def shuffled(x: torch.Tensor, groups: int) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


PLACES = torch.tensor([4, 0, 4, 2, 1])
KEPT: dict[str, Function] = {
    "shuffle": lambda x: shuffled(x, 3),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 3),
    "rows": lambda x: x.index_select(2, PLACES),
    "pixels": lambda x: x[:, :, PLACES[:, None], PLACES],
    "bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, size=(7, 15), mode="bicubic"),
    "nearest": lambda x: F.interpolate(x, size=(7, 15)),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "places": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[0],
}


def _images(program: Program) -> list[Map | Reduce]:
    """The nodes that write images."""
    return [n for n in program.nodes if isinstance(n, (Map, Reduce)) and len(n.dims) >= 3]


@pytest.mark.parametrize("name", KEPT)
def test_channels_stay_last(name: str) -> None:
    """The inner loop of every node that makes an image is that over its channels."""
    program = lowered(lambda x: KEPT[name](x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), IMAGE).program
    found = _images(program)
    assert found
    assert {node.dims[-1].extent.constant for node in found} <= {9, 3}  # channels; not rows or columns


@pytest.mark.parametrize(
    ("kernel", "pad", "dilation", "taps"), [(50, 0, 1, 6), (7, 1, 1, 7), (9, 4, 3, 4), (3, 1, 1, 3)]
)
def test_windows_end_with_the_image(kernel: int, pad: int, dilation: int, taps: int) -> None:
    """Of a window with more taps than the image has rows, those behind the end of every one are left out."""
    x = torch.randn(1, 4, 6, 6)
    program = lowered(lambda x: F.max_pool2d(x, kernel, max(kernel, 30), pad, dilation, ceil_mode=True), x).program
    (reduction,) = [n for n in program.nodes if isinstance(n, Reduce)]
    assert [v.extent.constant for v in reduction.rdims] == [taps, taps]


def test_order_of_a_copy() -> None:
    def order(shape: tuple[int, ...], memory: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
        sizes = shape_of(shape)
        buffer = Buffer("x", "f32", shape_of([torch.Size(shape).numel()])[0], "temp")
        return channels_last_order(Tensor(sizes, "f32", Strided(buffer, dense_strides(sizes, memory))), shape_of(new))

    last = (0, 3, 4, 2, 1)
    assert order((2, 4, 3, 5, 7), last, (2, 12, 5, 7)) == (0, 3, 4, 1, 2)
    assert order((2, 4, 3, 5, 7), (0, 1, 2, 3, 4), (2, 12, 5, 7)) is None  # row-major as it is
    assert order((2, 4, 3, 5, 7), last, (2, 12, 35)) is None  # no image
    assert order((2, 4, 3, 5, 7), last, (8, 3, 5, 7)) is None  # the fastest are not among the channels


BEHIND: dict[str, Function] = {
    "average": lambda x: F.avg_pool2d(x, 50, ceil_mode=True),
    "average, padded": lambda x: F.avg_pool2d(x, 20, 5, 10, ceil_mode=True),
    "maximum": lambda x: F.max_pool2d(x, 9, 30, 4, 3, ceil_mode=True),
    "places": lambda x: F.max_pool2d(x, 50, ceil_mode=True, return_indices=True)[1],
}


class All(nn.Module):
    """Every function of an image in row-major and in channels-last memory."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y = x.permute(0, 3, 1, 2)
        return [f(image) for f in (*KEPT.values(), *BEHIND.values()) for image in (x, y) if image.shape[1] % 3 == 0]


def test_against_torch(tmp_path: Path) -> None:
    path = mycc.compile(All(), (IMAGE,), out=tmp_path / "all.pkg", target="cpu")
    for got, want in zip(mycc.load(path)(IMAGE), All()(IMAGE.double()), strict=True):
        assert got.is_contiguous()
        torch.testing.assert_close(got.double(), want.double(), rtol=1e-5, atol=1e-5)


def test_a_joined_image_keeps_its_channels_together() -> None:
    """A resized image beside another lies in memory as the convolutions around it have theirs."""

    class Fuse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(3, 8, 1), nn.Conv2d(24, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = F.interpolate(self.a(x), size=x.shape[2:], mode="bilinear")
            return self.c(torch.cat((wide, self.b(x)), 1))

    x = torch.randn(1, 3, 8, 8)
    program = lowered(Call1(Fuse()), x).program
    joined = [n for n in program.nodes if n.origin.ops == ("aten.cat",)]
    assert [n.dims[-1].extent.constant for n in joined] == [16, 8]
