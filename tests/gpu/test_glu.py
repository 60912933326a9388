"""Gated layers: both halves of a merged product meet in its epilogue."""

from __future__ import annotations

import torch
from mycc.compiler.ir.nodes import Map
from mycc.compiler.ir.structured import Gemm
from torch import nn
from torch.nn import functional as F

from ..conftest import Golden
from ..helpers.device_programs import DeviceProgram, device_program, run_interpreted
from ..helpers.programs import plain
from ..helpers.triton_interpreter import TritonInterpreter


class Gated(nn.Module):
    """silu(gate(x)) * up(x), and through `down` when there is one."""

    def __init__(self, size: int, hidden: int, bias: bool) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(size, hidden, bias), nn.Linear(size, hidden, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


class BothRead(Gated):
    """The gate is a result of its own: it has to be stored."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        gate = self.gate(x)
        return F.silu(gate) * self.up(x), gate.softmax(-1)


def kinds(program: DeviceProgram) -> list[type]:
    return [type(node) for node in program.schedule.program.nodes]


def test_both_halves_meet_in_the_epilogue(golden: Golden, interpreter: TritonInterpreter) -> None:
    torch.manual_seed(0)
    model, x = Gated(64, 80, bias=True).eval(), torch.randn(2, 20, 64)
    program = device_program(model, (x,), dtype="f16")
    assert kinds(program) == [Gemm]
    golden(plain(str(program.schedule)))
    (y,) = run_interpreted(program, interpreter, (x.half(),))
    reference = model.half().double()(x.half().double()).detach()
    assert float((y.double() - reference).norm() / reference.norm()) < 2e-3


def test_a_half_that_is_read_elsewhere_is_stored() -> None:
    program = device_program(BothRead(64, 80, bias=False).eval(), (torch.randn(40, 64),), dtype="bf16")
    assert all(not node.also for node in program.schedule.program.nodes if isinstance(node, Gemm))


def test_one_row_keeps_its_own_kernel() -> None:
    program = device_program(Gated(64, 80, bias=False).eval(), (torch.randn(1, 64),), dtype="bf16")
    assert kinds(program) == [Gemm, Map]
