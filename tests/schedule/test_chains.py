"""Chains of convolutions: what becomes one, and every reason against it."""

from __future__ import annotations

from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.ir.structured import Conv, ConvChain
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.schedule import Schedule, schedule
from mycc.compiler.schedule.report import kernel_rows
from torch import nn

from ..helpers.programs import lowered, scheduled


class Block(nn.Module):
    """An inverted residual block; parts may be missing, or be read by others too."""

    def __init__(
        self, narrow: int = 16, wide: int = 64, stride: int = 1, expand: bool = True, project: bool = True,
        twice: bool = False, kernel: int = 3,
    ) -> None:  # fmt: skip
        super().__init__()
        self.expand = nn.Conv2d(narrow, wide, 1) if expand else None
        self.depthwise = nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide)
        self.project = nn.Conv2d(wide, narrow, 1) if project else None
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.expand(x).relu() if self.expand else x
        y = self.depthwise(h).relu()
        z = self.project(y) if self.project else y
        z = z + x if z.shape == x.shape else z
        return z + h.mean() if self.twice else z


def image(channels: int = 16, size: int = 56, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, channels, size, size).to(memory_format=torch.channels_last)


def chains(s: Schedule) -> list[ConvChain]:
    return [n for n in s.program.nodes if isinstance(n, ConvChain)]


def reasons(s: Schedule) -> set[str]:
    return {r.reason for r in s.remarks}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_block_is_one_kernel(dynamic: bool) -> None:
    s = scheduled(Block().eval(), image(batch=2), dynamic=dynamic)
    verify_program(s.program)
    (chain,) = chains(s)
    assert [link.depthwise for link in chain.links] == [False, True, False]
    assert not any(isinstance(n, Conv) for n in s.program.nodes)
    written = {b for n in s.program.nodes for b in n.writes()}
    assert not written & set(chain.locals)
    assert s.names[s.program.nodes.index(chain)].startswith("conv1x1_depthwise3x3_conv1x1")


@pytest.mark.parametrize(("expand", "project", "links"), [(True, False, 2), (False, True, 2), (False, False, 0)])
def test_either_1x1_may_be_missing(expand: bool, project: bool, links: int) -> None:
    channels = 16 if expand else 64
    s = scheduled(Block(expand=expand, project=project).eval(), image(channels))
    assert [len(c.links) for c in chains(s)] == ([links] if links else [])


def test_its_operations_are_those_of_its_links() -> None:
    s = scheduled(Block().eval(), image())
    row = next(r for r in kernel_rows(s, s.names) if r["kind"] == "convchain")
    pixels = 56 * 56
    assert int(row["flops"]) == 2 * pixels * (16 * 64 + 9 * 64 + 64 * 16)
    # the map between the convolutions is not moved: x, what is added, the result, weights and biases
    assert int(row["bytes"]) < 4 * (3 * pixels * 16 + 4 * 64 * 16)


@pytest.mark.parametrize(
    ("block", "x", "reason"),
    [
        (Block(), image(size=28), "the map between them stays in the cache"),
        (Block(wide=640), image(size=13), "too few rows to share them out"),
        (Block(narrow=576, wide=128), image(576), "the weights do not stay in the cache"),
    ],
)
def test_refusals(block: Block, x: torch.Tensor, reason: str) -> None:
    s = scheduled(block.eval(), x)
    assert not chains(s)
    assert reason in reasons(s)


def test_a_map_that_others_read_too_is_written() -> None:
    (chain,) = chains(scheduled(Block(twice=True).eval(), image()))
    assert len(chain.links) == 2


def test_without_epilogues_there_are_no_chains() -> None:
    program = lowered(Block().eval(), image()).program
    assert not chains(schedule(program, ScheduleOptions(epilogues=False)))
    assert not chains(schedule(program, device=DEVICES[90]))


def test_a_package_with_chains(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        Block(), Block(stride=2, kernel=5), nn.Conv2d(16, 40, 1), Block(40, 200, project=False), nn.Conv2d(200, 12, 1)
    ).eval()
    x = image(size=64)
    path = mycc.compile(model, (x,), out=tmp_path / "m.pkg")
    wide = model.double()(x.double()).detach().numpy()
    results = [np.asarray(mycc.load(path, threads=n)(x.numpy())) for n in (1, 2, 3)]
    assert np.abs(results[0] - wide).max() <= 1e-5 * np.abs(wide).max()
    assert all(r.tobytes() == results[0].tobytes() for r in results)


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 1), (5, 1, 0), ((2, 4), (3, 1), (1, 2))])
def test_the_convolution_of_an_image_is_the_first_link(
    planes: bool, kernel: int, stride: int, pad: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 40, kernel, stride, pad), nn.ReLU6())
    model = nn.Sequential(stem, Block(24, 40, expand=False)).eval()
    x = image(3, 117, batch=2)
    x = x.contiguous() if planes else x
    (chain,) = chains(scheduled(model, x))
    assert [link.window.kernel for link in chain.links] == [stem[0].kernel_size, (3, 3), (1, 1)]
    path = mycc.compile(model, (x,), out=tmp_path / "m.pkg")
    wide = model.double()(x.double()).detach().numpy()
    results = [np.asarray(mycc.load(path, threads=n)(x.numpy())) for n in (1, 2, 3)]
    assert np.abs(results[0] - wide).max() <= 1e-5 * np.abs(wide).max()
    assert all(r.tobytes() == results[0].tobytes() for r in results)
