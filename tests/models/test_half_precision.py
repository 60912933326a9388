"""Whole models in half precision on the CPU: converted by the compiler, and exported under autocast."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from torch import nn

from . import small_zoo


class Autocast(nn.Module):
    """A model whose forward runs under autocast: products in a narrow type, norms and sums in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dtype = dtype
        self.up, self.down, self.norm = nn.Linear(32, 64), nn.Linear(64, 32), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", dtype=self.dtype):
            h = self.down(nn.functional.gelu(self.up(x)))
            square = torch.einsum("bij,bkj->bik", x, x) + nn.functional.mse_loss(h, x)  # a scalar in float32
            return h, self.norm(h + x), (h @ h.mT).softmax(-1), square


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_autocast(dtype: torch.dtype, tmp_path: Path) -> None:
    model, x = Autocast(dtype).eval(), torch.randn(3, 5, 32)
    package = mycc.load(mycc.compile(model, (x,), out=tmp_path / "autocast.pkg"))
    with torch.no_grad():
        for found, wanted in zip(package(x), model(x), strict=True):
            assert found.dtype == wanted.dtype
            torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_a_program_exported_under_autocast(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4)).eval(), torch.randn(3, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program, wanted = torch.export.export(model, (x,)), model(x)
    found = mycc.load(mycc.compile(program, out=tmp_path / "outside.pkg"))(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", ["bert", "resnet50"])
def test_whole_models(name: str, dtype: str, tmp_path: Path) -> None:
    """The package is compared with float64 before it is written; here its inputs and outputs are what was asked for."""
    model, args = getattr(small_zoo, name)()
    package = mycc.load(mycc.compile(model, args, out=tmp_path / f"{name}.pkg", dtype=dtype))
    narrow = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    given = [x.to(narrow) if x.is_floating_point() else x for x in args]
    with torch.no_grad():
        wanted = model(*args)
    found = package(*given)
    assert found.dtype == narrow
    assert (found.float() - wanted).norm() <= 0.05 * wanted.norm()
