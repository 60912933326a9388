"""Gated layers on the CPU: both halves of a merged product meet in its epilogue."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import mycc
import pytest
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)  # the weights of the models below
CPU = ("cpu", "cpu:x86-64-v2", "cpu:x86-64-v3")


class Gated(nn.Module):
    """act(gate(x)) * up(x), two products of the same rows."""

    def __init__(self, size: int, hidden: int, bias: bool = False) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(size, hidden, bias), nn.Linear(size, hidden, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


class Chunked(Gated):
    """One product whose second half is the gate, as in GEGLU; the layer adds its input."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size, True)
        self.both = nn.Linear(size, 2 * size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.both(x).chunk(2, -1)
        return value * F.gelu(gate) + x


class BothRead(Gated):
    """The gate is a result of its own: it has to be stored."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        gate = self.gate(x)
        return F.silu(gate) * self.up(x), gate.softmax(-1)


def kernels(path: Path) -> list[str]:
    """Names of a package's kernels."""
    with zipfile.ZipFile(path) as package:
        return [row["name"] for row in json.loads(package.read("manifest.json"))["entry_points"][0]["kernels"]]


def near(got: object, want: torch.Tensor, dtype: torch.dtype) -> None:
    error = 2e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(torch.as_tensor(got).double(), want, rtol=error, atol=error)


@pytest.mark.parametrize("target", CPU)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "model", [Gated(96, 80), Gated(800, 208, True), Chunked(112)], ids=["plain", "deep", "chunked"]
)
def test_halves_meet(model: nn.Module, dtype: torch.dtype, target: str, tmp_path: Path) -> None:
    """Any number of rows, and the same bits for any number of threads."""
    model = model.to(dtype).eval()
    size = next(iter(model.parameters())).shape[-1]
    rows = torch.export.Dim("rows", min=1, max=512)
    example = torch.randn(6, size, generator=torch.Generator().manual_seed(1)).to(dtype)
    path = mycc.compile(model, (example,), out=tmp_path / "gated.pkg", dynamic_shapes=({0: rows},), target=target)
    widened = dtype != torch.float32  # x, before it is multiplied
    assert len(kernels(path)) == 1 + widened, kernels(path)
    alone, together = (mycc.load(path, threads=threads) for threads in (1, 2))
    for count in (1, 2, 17, 130):
        x = torch.randn(count, size, generator=torch.Generator().manual_seed(count)).to(dtype)
        got = torch.as_tensor(alone(x))
        near(got, model.double()(x.double()).detach(), dtype)
        model.to(dtype)
        assert torch.equal(got, torch.as_tensor(together(x)))


@pytest.mark.parametrize(
    ("model", "count"), [(BothRead(64, 80), 3), (Gated(64, 24), 2)], ids=["both_read", "no_panels"]
)
def test_halves_that_are_stored(model: nn.Module, count: int, tmp_path: Path) -> None:
    """One is read elsewhere, or shares a panel with the other."""
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    path = mycc.compile(model.float().eval(), (x,), out=tmp_path / "gated.pkg")
    assert len(kernels(path)) == count, kernels(path)
    got, want = mycc.load(path)(x), model.double()(x.double())
    for g, w in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        near(g, w.detach(), torch.float32)
