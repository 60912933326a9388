"""Products whose operands lie in memory in either order: gradients of weights read activations as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from mycc.compiler.codegen.cuda.generate import generate_device
from mycc.compiler.ir.plans.tiles import GemmTile
from mycc.compiler.ir.structured import Gemm
from mycc.compiler.schedule.gpu.fit import misfit
from mycc.compiler.schedule.passes import Context
from mycc.compiler.schedule.planning import plan_kernel
from mycc.compiler.schedule.remarks import Remarks
from torch import Tensor

from ..helpers.device_programs import DEVICE, DeviceProgram, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

WALKING = GemmTile(32, 32, 16, 4, 3, descriptors=True)


def of_weight(g: Tensor, x: Tensor) -> Tensor:
    return g.T @ x


def of_weight_and_bias(g: Tensor, x: Tensor) -> Tensor:
    return (g.T @ x).float() * 2 + 1


def of_each_head(g: Tensor, x: Tensor) -> Tensor:
    return g.view(-1, 3, 16).permute(1, 2, 0) @ x.view(-1, 3, 24).permute(1, 0, 2)


CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "gradient of a weight": (of_weight, 1),
    "with an epilogue": (of_weight_and_bias, 1),
    "of each head": (of_each_head, 1),
}


def program_of(function: Callable[..., Tensor], rows: int, dtype: torch.dtype) -> tuple[DeviceProgram, list[Tensor]]:
    torch.manual_seed(rows)
    inputs = [torch.randn(rows, 48).to(dtype), torch.randn(rows, 72).to(dtype)]
    return device_program(Call1(function).eval(), inputs), inputs


@pytest.mark.parametrize("rows", [1, 40, 83])
@pytest.mark.parametrize("name", CASES)
def test_no_operand_is_copied(name: str, rows: int, interpreter: TritonInterpreter) -> None:
    function, kernels = CASES[name]
    program, inputs = program_of(function, rows, torch.float16)
    assert len(program.schedule.program.nodes) == kernels
    (found,) = run_interpreted(program, interpreter, inputs)
    expected = function(*(t.double() for t in inputs))
    assert float((found.double() - expected).norm() / expected.norm()) < 1e-3


def test_float32_has_columns_that_are_dense_along_k() -> None:
    program, _ = program_of(of_weight, 40, torch.float32)
    (gemm,) = (n for n in program.schedule.program.nodes if isinstance(n, Gemm))
    assert gemm.row_strides[1].constant == 1


@pytest.mark.parametrize("rows", [16, 40])
def test_descriptors_turn_blocks(rows: int, interpreter: TritonInterpreter) -> None:
    """Tiles of the left operand come as blocks of k by rows, those of the right one as they lie."""
    program, inputs = program_of(of_weight, rows, torch.float16)
    (gemm,) = program.schedule.program.nodes
    assert isinstance(gemm, Gemm)
    assert misfit(gemm, WALKING) == ""
    assert "specialized" in misfit(gemm, GemmTile(128, 128, 64, 4, 3, descriptors=True, specialize=True))
    kernel = plan_kernel(gemm, Context(Remarks(), DEVICE), {"tile": WALKING})
    planned = replace(program.schedule, kernels=(kernel,))
    chosen = replace(program, schedule=planned, code=generate_device([program.graph], [planned], DEVICE))
    assert ".load([step, tile_m * 32]).T" in chosen.code.kernels[0].source
    (found,) = run_interpreted(chosen, interpreter, inputs)
    expected = of_weight(*(t.double() for t in inputs))
    assert float((found.double() - expected).norm() / expected.norm()) < 1e-3
