"""Convolutions of many channels to few: one product for all taps, whose rows are summed up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import mycc
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from .conv_support import KINDS, ChannelsLast, checked, kernel_names

CHANNELS = ((5, 1), (16, 3), (33, 2), (24, 6))
#: kernel, stride, pad, dilation
KERNELS = (
    (2, 1, 0, 1),
    (3, 1, 1, 1),
    (3, 1, 2, 2),
    (5, 1, 2, 1),
    (3, 2, 1, 1),
    (4, 2, 1, 1),
    (2, 2, 0, 1),
    (5, 1, 6, 1),
)


def forms() -> Iterator[tuple[nn.Module, Tensor]]:
    for dimensions, (inputs, outputs), (kernel, stride, pad, dilation) in itertools.product(KINDS, CHANNELS, KERNELS):
        conv, transposed, size = KINDS[dimensions]
        x = torch.randn(2, inputs, *size)
        yield conv(inputs, outputs, kernel, stride, pad, dilation), x
        pad = min(pad, dilation * (kernel - 1))
        yield transposed(inputs, outputs, kernel, stride, pad, stride // 2, 1, outputs != 2, dilation), x
        yield ChannelsLast(conv(inputs, outputs, kernel, stride, pad, dilation)), x.movedim(1, -1).contiguous()


@pytest.mark.parametrize("part", range(8))
def test_few_outputs(part: int, tmp_path: Path) -> None:
    torch.manual_seed(part)
    cases = list(forms())[part::22]
    assert len(cases) > 10
    checked(cases, tmp_path, "cpu:x86-64-v3" if part > 5 else "cpu")


class Given(nn.Module):
    """The weights are inputs."""

    def forward(self, x: Tensor, plain: Tensor, back: Tensor) -> list[Tensor]:
        return [nn.functional.conv2d(x.relu(), plain, padding=1), nn.functional.conv_transpose2d(x, back, stride=2)]


def test_weights_that_are_inputs(tmp_path: Path) -> None:
    torch.manual_seed(5)
    inputs = torch.randn(2, 9, 17, 40), torch.randn(3, 9, 3, 3), torch.randn(9, 1, 4, 4)
    package = mycc.load(mycc.compile(Given(), inputs, out=tmp_path / "given.pkg", verify=False))
    for mine, want in zip(package(*inputs), Given()(*(t.double() for t in inputs)), strict=True):
        torch.testing.assert_close(mine.double(), want, rtol=1e-5, atol=1e-5)


class Decoder(nn.Module):
    """What ends in an image: wide maps, then few channels."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.up = nn.Conv2d(3, 24, 3, 1, 1), nn.ConvTranspose2d(24, 3, 4, 2, 1)
        self.last = nn.Conv2d(24, 3, 9, 1, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        wide = self.inner(x).relu()
        return self.last(wide).tanh(), torch.sigmoid(self.up(wide))


def test_sizes_of_the_call(tmp_path: Path) -> None:
    torch.manual_seed(6)
    model = Decoder().eval()
    sizes = {0: Dim("batch", max=9), 2: Dim("height", min=8, max=64), 3: Dim("width", min=8, max=64)}
    path = mycc.compile(
        model, (torch.randn(4, 3, 20, 33),), out=tmp_path / "decoder.pkg", dynamic_shapes=(sizes,), verify=False
    )
    package = mycc.load(path, threads=2)
    for shape in ((4, 3, 20, 33), (1, 3, 8, 8), (9, 3, 31, 64)):
        x = torch.randn(shape)
        with torch.no_grad():
            for mine, want in zip(package(x), model(x), strict=True):
                torch.testing.assert_close(mine, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "outputs", "size", "chosen"),
    [
        (32, 1, 20, True),
        (32, 3, 20, True),
        (32, 6, 20, True),
        (32, 7, 20, False),
        (4, 3, 20, False),
        (20, 3, 1000, False),
    ],
)
def test_chosen_for_few_outputs_and_little_memory(
    inputs: int, outputs: int, size: int, chosen: bool, tmp_path: Path
) -> None:
    model = nn.Conv2d(inputs, outputs, 3, 1, 1).eval()
    kernels = kernel_names(model, torch.zeros(1, inputs, size, size), tmp_path)
    assert any("gemm" in name for name in kernels) == chosen, kernels
