"""Convolutions that nothing reads channels last: 1x1 as products or sums, few channels to many, groups, transposed
blocks, and panels whose blocks are turned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import mycc
import pytest
import torch
from torch import Tensor, nn

from .conv_support import ChannelsLast, checked, kernel_names, names_in

#: dimensions -> plain, transposed, a pool, a map of many pixels
KINDS = {
    1: (nn.Conv1d, nn.ConvTranspose1d, nn.MaxPool1d(2), (331,)),
    2: (nn.Conv2d, nn.ConvTranspose2d, nn.AvgPool2d(2), (13, 37)),
    3: (nn.Conv3d, nn.ConvTranspose3d, nn.MaxPool3d(2), (5, 9, 20)),
}
#: inputs, outputs, groups
ONES = ((5, 7, 1), (20, 33, 1), (60, 60, 1), (17, 3, 1), (3, 40, 1), (16, 32, 4), (6, 12, 6), (34, 34, 2))
#: inputs, outputs, kernel, stride, pad, dilation
FEW_TO_MANY = ((1, 20, 3, 1, 1, 1), (3, 33, 3, 2, 1, 1), (4, 16, 5, 1, 2, 1), (2, 9, 3, 1, 2, 2), (3, 24, 5, 3, 0, 1))
#: inputs, outputs, groups, kernel, stride, pad, dilation: as sums, in planes, and by panels whose blocks are turned
GROUPS = (
    *((16, 16, 16, 9, 1, 4, 1), (16, 16, 16, 3, 2, 1, 1), (16, 16, 16, 2, 2, 0, 1), (6, 12, 6, 3, 1, 2, 2)),
    *((3, 3, 3, 7, 2, 3, 1), (16, 16, 16, 3, 1, 2, 2), (8, 16, 4, 3, 1, 1, 1), (32, 32, 16, 5, 1, 2, 1)),
    *((48, 34, 2, 3, 2, 1, 1), (64, 64, 2, 3, 1, 2, 2), (32, 20, 1, 5, 1, 3, 1), (32, 40, 1, 2, 2, 0, 1)),
)
BLOCKS = ((20, 3, 2), (33, 9, 2), (17, 1, 3), (6, 20, 4))


def read_by(conv: nn.Module, pool: nn.Module, i: int) -> nn.Module:
    """The convolution alone, or with what keeps its planes, or with what reads them otherwise behind it."""
    readers: list[list[nn.Module]] = [[], [nn.GELU(), pool], [nn.Flatten(2), nn.Softmax(-1)]]
    return nn.Sequential(conv, *readers[i % len(readers)])


def forms() -> Iterator[tuple[nn.Module, Tensor]]:
    for i, (conv, transposed, pool, size) in enumerate(KINDS.values()):
        for j, (inputs, outputs, groups) in enumerate(ONES, i):
            x = torch.randn(2, inputs, *size)
            yield read_by(conv(inputs, outputs, 1, groups=groups, bias=j % 2 == 0), pool, j), x
            yield read_by(transposed(inputs, outputs, 1, groups=groups), pool, j + 1), x
        for j, (inputs, outputs, kernel, stride, pad, dilation) in enumerate(FEW_TO_MANY, i):
            x = torch.randn(2, inputs, *size)
            yield read_by(conv(inputs, outputs, kernel, stride, pad, dilation, bias=j % 2 == 0), pool, j), x
        for j, (inputs, outputs, groups, kernel, stride, pad, dilation) in enumerate(GROUPS, i):
            x, bias = torch.randn(2, inputs, *size), j % 2 == 0
            yield read_by(conv(inputs, outputs, kernel, stride, pad, dilation, groups, bias), pool, j), x
            if dilation == 1:
                yield read_by(transposed(inputs, outputs, kernel, stride, pad, 0, groups, bias), pool, j), x
        for j, (inputs, outputs, kernel) in enumerate(BLOCKS, i):
            x = torch.randn(2, inputs, *size)
            yield read_by(transposed(inputs, outputs, kernel, kernel, bias=j % 2 == 0), pool, j), x
            last = ChannelsLast(transposed(inputs, outputs, kernel, kernel))
            yield last, x.movedim(1, -1).contiguous()


@pytest.mark.parametrize("part", range(8))
def test_nchw_that_stays(part: int, tmp_path: Path) -> None:
    torch.manual_seed(part)
    cases = list(itertools.islice(forms(), part, None, 8))
    assert len(cases) > 10
    checked(cases, tmp_path, "cpu:x86-64-v3" if part > 5 else "cpu")


def test_chosen_by_what_reads_them(tmp_path: Path) -> None:
    """A convolution behind it wants its operand channels last."""
    first, x = nn.Conv2d(3, 16, 3, 1, 1), torch.zeros(1, 3, 24, 24)
    alone = kernel_names(nn.Sequential(first, nn.ReLU()), x, tmp_path)
    followed = kernel_names(nn.Sequential(first, nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1)), x, tmp_path)
    assert any("nchw" in name for name in alone), alone
    assert not any("nchw" in name for name in followed), followed


def test_transposed_with_what_is_fused(tmp_path: Path) -> None:
    """Residuals in planes, factors of a row or a column, a dynamic batch: what a block of flat pixels has to find."""
    conv = nn.Conv2d(32, 24, 5, 1, 2)

    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = conv

        def forward(self, x: Tensor, y: Tensor, row: Tensor, column: Tensor) -> Tensor:
            return torch.relu(self.conv(x) * row + y) * column[:, None]

    torch.manual_seed(0)
    x, y, row, column = torch.randn(3, 32, 21, 26), torch.randn(3, 24, 21, 26), torch.randn(26), torch.randn(21)
    module, out = Fused().eval(), tmp_path / "fused.pkg"
    batch = torch.export.Dim("batch", max=64)
    mycc.compile(module, (x, y, row, column), dynamic_shapes=({0: batch}, {0: batch}, None, None), out=out)
    model = mycc.load(out)
    assert any(name.endswith("p16_nchw") for name in names_in(out)), names_in(out)
    for n in (1, 3):
        expected = module.double()(x[:n].double(), y[:n].double(), row.double(), column.double())
        got = torch.from_numpy(model(x[:n].numpy(), y[:n].numpy(), row.numpy(), column.numpy()))
        assert (got - expected).norm() < 1e-6 * expected.norm()
