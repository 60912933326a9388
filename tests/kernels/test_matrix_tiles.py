"""Whole packages whose products go through matrix tiles, with C++ in the place of the instructions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.machine import targets
from torch import nn


class Net(nn.Module):
    """Convolutions of several taps and of one, with strides and padding; linear layers, one gated, one of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.points = nn.Conv2d(24, 40, 1)
        self.taps = nn.Conv2d(40, 40, 3, padding=1)
        self.strided = nn.Conv2d(40, 72, 1, stride=2)
        self.rows = nn.Linear(72, 96)
        self.more = nn.Linear(48, 20)
        self.one = nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.points(torch.relu(self.first(x))))
        x = torch.relu(self.strided(torch.relu(self.taps(x)) + x))
        x = self.more(nn.functional.glu(self.rows(x.flatten(2).transpose(1, 2))))
        return self.one(x.mean(1))


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target of this machine has tiles, in C++."""
    host = targets.host_target()
    flags = (*host.flags, "-DMYCC_AMX_IN_CPP")
    changed = tuple(replace(t, flags=flags) if t.name == host.name else t for t in targets.TARGETS)
    monkeypatch.setattr(targets, "TARGETS", changed)


@pytest.mark.slow  # the kernels alone: test_quantised.py
@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("how", ["int8", "bf16"])
def test_packages_with_tiles_are_right(how: str, tmp_path: Path) -> None:
    """The compile compares them with the model in float64, and refuses wrong ones."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(1, 3, 29, 26)
    given = {"quantize": "int8", "calibrate": [(x,)]} if how == "int8" else {}
    if how == "bf16":
        model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)
    package = tmp_path / "tiles.pkg"
    mycc.compile(model, (x,), out=package, target="cpu", dump=tmp_path / "dump", **given)  # type: ignore[arg-type]
    (dump,) = (tmp_path / "dump").glob("*codegen.txt")
    assert "args.tile_rows = tile_rows" in dump.read_text()
    assert ("gemm_glu" in dump.read_text()) == (how == "bf16")
    assert tuple(mycc.load(package, threads=2)(x).shape) == (1, 10)
