"""Convolutions that are sums over their taps: few channels, one input channel for each output, three dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import mycc
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from .conv_support import KINDS, ChannelsLast, checked

CHANNELS = ((3, 3, 3), (3, 3, 1), (1, 8, 1), (6, 12, 6), (20, 20, 20), (1, 1, 1))  # inputs, outputs, groups
KERNELS = ((1, 1, 0, 1), (2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (4, 2, 1, 1), (5, 3, 2, 1))
WIDE = ((9, 1, 4, 1), (9, 2, 0, 1), (8, 1, 3, 2))


def plain(dimensions: int) -> Iterator[tuple[nn.Module, Tensor]]:
    conv, transposed, size = KINDS[dimensions]
    for (inputs, outputs, groups), (kernel, stride, pad, dilation) in itertools.product(CHANNELS, KERNELS):
        x = torch.randn(2, inputs, *size)
        yield conv(inputs, outputs, kernel, stride, pad, dilation, groups), x
        more = stride // 2
        yield transposed(inputs, outputs, kernel, stride, pad, more, groups, True, dilation), x
        yield transposed(inputs, outputs, kernel, stride, pad, 0, groups, False, dilation), x


def laid_out() -> Iterator[tuple[nn.Module, Tensor]]:
    for dimensions, (kernel, stride, pad, dilation) in itertools.product(KINDS, (*KERNELS, *WIDE)):
        conv, transposed, size = KINDS[dimensions]
        if all(n + 2 * pad > dilation * (kernel - 1) for n in size):
            x = torch.randn(2, *size, 20)
            yield ChannelsLast(conv(20, 20, kernel, stride, pad, dilation, 20)), x
            yield ChannelsLast(transposed(20, 20, kernel, stride, pad, 0, 20, True, dilation)), x


@pytest.mark.parametrize("dimensions", KINDS)
def test_few_channels(dimensions: int, tmp_path: Path) -> None:
    torch.manual_seed(3)
    cases = list(plain(dimensions))[dimensions - 1 :: 8]  # each kernel and each number of channels, over the dimensions
    assert len(cases) > 14
    checked(cases, tmp_path)


@pytest.mark.parametrize("part", range(2))
def test_channels_last(part: int, tmp_path: Path) -> None:
    torch.manual_seed(4)
    cases = list(laid_out())[2 * part :: 4]
    assert len(cases) > 10
    checked(cases, tmp_path)


class Given(nn.Module):
    """The weights are inputs."""

    def forward(self, x: Tensor, flat: Tensor, deep: Tensor, back: Tensor) -> list[Tensor]:
        y = nn.functional.conv2d(x, flat, padding=1, groups=3)
        z = nn.functional.conv3d(x[:, :, None], deep, padding=1, groups=3)
        return [y.relu() + x, z, nn.functional.conv_transpose2d(x, back, stride=2, groups=3)]


def test_weights_that_are_inputs(tmp_path: Path) -> None:
    torch.manual_seed(5)
    inputs = torch.randn(2, 3, 17, 40), torch.randn(3, 1, 3, 3), torch.randn(3, 1, 3, 3, 3), torch.randn(3, 1, 4, 4)
    package = mycc.load(mycc.compile(Given(), inputs, out=tmp_path / "given.pkg", verify=False))
    for mine, want in zip(package(*inputs), Given()(*(t.double() for t in inputs)), strict=True):
        torch.testing.assert_close(mine.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8, torch.int32, torch.int64], ids=str)
def test_other_types(dtype: torch.dtype, tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(8)
    x, w = (torch.randint(0, 5, shape, generator=draw).to(dtype) for shape in ((2, 3, 20, 40), (3, 1, 3, 3)))

    class Depthwise(nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return nn.functional.conv2d(x, w, padding=1, groups=3)

    package = mycc.load(mycc.compile(Depthwise(), (x, w), out=tmp_path / "types.pkg", verify=False))
    assert torch.equal(package(x, w), Depthwise()(x, w))


class Video(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.across, self.deep = nn.Conv2d(3, 3, 5, 1, 2, groups=3), nn.Conv3d(24, 24, 3, 1, 1, groups=24)
        self.wide, self.up = nn.Conv3d(3, 24, 1), nn.ConvTranspose2d(3, 3, 4, 2, 1, groups=3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        frames = self.across(x)
        return self.deep(self.wide(frames.transpose(0, 1)[None]).relu()), self.up(frames)


def test_sizes_of_the_call(tmp_path: Path) -> None:
    torch.manual_seed(6)
    model = Video().eval()
    sizes = {0: Dim("frames", max=9), 2: Dim("height", min=8, max=64), 3: Dim("width", min=8, max=64)}
    example = (torch.randn(4, 3, 20, 33),)
    path = mycc.compile(model, example, out=tmp_path / "video.pkg", dynamic_shapes=(sizes,), verify=False)
    package = mycc.load(path, threads=2)
    for shape in ((4, 3, 20, 33), (2, 3, 8, 8), (9, 3, 31, 64)):
        x = torch.randn(shape)
        with torch.no_grad():
            for mine, want in zip(package(x), model(x), strict=True):
                torch.testing.assert_close(mine, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu:x86-64-v2", "cpu:x86-64-v3"])
def test_other_lanes(target: str, tmp_path: Path) -> None:
    torch.manual_seed(7)
    cases = list(plain(2))[::11] + list(laid_out())[1::6]
    assert len(cases) > 15
    checked(cases, tmp_path, target)
