"""Convolutions of few channels to few, in planes; depthwise ones of fewer channels than make a vector."""

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

CHANNELS = ((1, 1), (1, 8), (3, 3), (2, 5), (9, 7), (12, 4))
#: kernel, stride, pad, dilation
KERNELS = (
    (2, 1, 0, 1),
    (3, 1, 1, 1),
    (3, 1, 2, 2),
    (4, 3, 5, 1),
    (5, 2, 2, 1),
    (5, 5, 0, 1),
    (7, 1, 3, 1),
)


def forms() -> Iterator[tuple[nn.Module, Tensor]]:
    for dimensions, (inputs, outputs), (kernel, stride, pad, dilation) in itertools.product(KINDS, CHANNELS, KERNELS):
        conv, transposed, size = KINDS[dimensions]
        if dimensions == 3 and kernel > 5:
            continue
        x = torch.randn(2, inputs, *size)
        yield conv(inputs, outputs, kernel, stride, pad, dilation, bias=outputs != 4), x
        yield transposed(inputs, outputs, kernel, stride, min(pad, dilation * (kernel - 1)), 0, 1, True, dilation), x
        yield ChannelsLast(conv(inputs, outputs, kernel, stride, pad, dilation)), x.movedim(1, -1).contiguous()


@pytest.mark.parametrize("part", range(8))
def test_few_to_few(part: int, tmp_path: Path) -> None:
    torch.manual_seed(part)
    cases = list(forms())[part::22]
    assert len(cases) > 10
    checked(cases, tmp_path, "cpu:x86-64-v3" if part > 5 else "cpu")


class Small(nn.Module):
    """Maps of few channels from the first to the last: filters, a depthwise one, what follows fused."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 5, 1, 2)
        self.depthwise, self.last = nn.Conv2d(8, 8, 5, 1, 2, groups=8), nn.Conv2d(8, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.last(torch.nn.functional.silu(self.depthwise(x + self.second(x).tanh())))


def test_sizes_of_the_call(tmp_path: Path) -> None:
    torch.manual_seed(7)
    model = Small().eval()
    sizes = {0: Dim("batch", max=9), 2: Dim("height", min=8, max=64), 3: Dim("width", min=8, max=2500)}
    path = mycc.compile(
        model, (torch.randn(4, 3, 20, 33),), out=tmp_path / "small.pkg", dynamic_shapes=(sizes,), verify=False
    )
    package = mycc.load(path, threads=2)
    for shape in ((4, 3, 20, 33), (1, 3, 8, 8), (9, 3, 31, 64), (1, 3, 9, 2499)):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(package(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "chosen"),
    [
        (nn.Conv2d(3, 8, 3, padding=1), "nchw"),
        (nn.Conv2d(3, 9, 3, padding=1), "nchw"),
        (nn.Conv2d(5, 9, 3, padding=1), "p16"),
        (nn.Conv2d(3, 3, 3, padding=2, dilation=2), "nchw"),
        (nn.Conv2d(3, 3, 3, 2, 1), "reduce"),  # each row is read once for all windows
        (nn.Conv2d(1, 1, 3, padding=1), "reduce"),
        (nn.Conv2d(16, 6, 3, padding=1), "nchw"),
        (nn.Conv2d(17, 6, 3, padding=1), "gemm"),
        (nn.Conv2d(32, 8, 3, padding=1), "nchw"),
        (nn.ConvTranspose2d(3, 8, 5, padding=2), "nchw"),
        (nn.ConvTranspose2d(32, 32, 2, 2, groups=16), "rows"),
        (nn.ConvTranspose2d(32, 32, 4, 2, groups=16), "groups"),
    ],
)
def test_chosen(model: nn.Conv2d, chosen: str, tmp_path: Path) -> None:
    kernels = kernel_names(model.eval(), torch.zeros(1, model.in_channels, 20, 20), tmp_path)
    assert any(chosen in name for name in kernels), kernels


def test_channels_that_lie_last_are_transposed_for_many_taps_alone(tmp_path: Path) -> None:
    def kernels(kernel: int, stride: int) -> str:
        model = nn.Sequential(nn.Conv2d(16, 12, 1), nn.Conv2d(12, 8, kernel, stride)).eval()
        return " ".join(kernel_names(model, torch.zeros(1, 16, 20, 20), tmp_path))

    assert "nchw" in kernels(5, 1)
    assert "nchw" not in kernels(5, 2)
    assert "nchw" not in kernels(3, 1)


@pytest.mark.parametrize("channels", [8, 12])
def test_depthwise_of_fewer_channels_than_lanes(channels: int, tmp_path: Path) -> None:
    """Between 1x1 convolutions, whose channels lie last."""
    torch.manual_seed(8)
    narrow, wide = nn.Conv2d(16, channels, 1), nn.Conv2d(channels, 16, 1)
    inner = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
    model = nn.Sequential(narrow, nn.ReLU(), inner, nn.ReLU(), wide)
    x = torch.randn(2, 16, 13, 37)
    checked([(model, x)], tmp_path, "cpu")
    kernels = kernel_names(model, x, tmp_path)
    assert not any("rows" in name for name in kernels), kernels  # windows are no rows of their own
