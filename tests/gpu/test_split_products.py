"""Products with few rows whose parts the norm behind them adds: schedules as goldens, results against float64."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.ir.structured import Gemm
from torch import nn
from torch.nn import functional as F

from ..conftest import Golden
from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import plain
from ..helpers.triton_interpreter import TritonInterpreter


class Normed(nn.Module):
    """A residual branch and its norm, as after an attention or a feed-forward half."""

    def __init__(self, size: int, hidden: int, norm: type[nn.Module]) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, size)
        self.norm = norm(size)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.down(h) + x
        return self.norm(y), y * 2


class Plain(nn.Module):
    """No norm follows."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(3072, 768)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.down(h))


def products(program: object) -> list[Gemm]:
    return [n for n in program.schedule.program.nodes if isinstance(n, Gemm)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_parts_are_added_by_the_norm(norm: type[nn.Module], golden: Golden, interpreter: TritonInterpreter) -> None:
    torch.manual_seed(0)
    model = Normed(768, 768, norm).eval()
    inputs = (torch.randn(128, 768), torch.randn(128, 768))
    program = device_program(model, inputs, dtype="f16")
    golden(plain(str(program.schedule)))
    if norm is nn.RMSNorm:
        return  # the interpreter takes its time
    half = tuple(t.half() for t in inputs)
    outputs = run_interpreted(program, interpreter, half)
    reference = model.half().double()(*(t.double() for t in half))
    for y, expected in zip(outputs, reference, strict=True):
        assert float(((y.double() - expected).norm() / expected.norm()).detach()) < 2e-3


def test_nothing_is_split_without_rows_behind_it() -> None:
    (product,) = products(device_program(Plain().eval(), (torch.randn(128, 3072),), dtype="bf16"))
    assert len(product.dims) == 2


def test_many_rows_are_not_split() -> None:
    model, rows = Normed(768, 3072, nn.LayerNorm).eval(), 4096
    (product,) = products(device_program(model, (torch.randn(rows, 768), torch.randn(rows, 3072)), dtype="bf16"))
    assert len(product.dims) == 2
