"""Gradients of convolutions' weights as GPU kernels: through Triton's interpreter, by the evaluator, and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import parse_targets

from ..helpers.device_programs import DeviceProgram, device_program, run_interpreted
from ..helpers.evaluation import answer, given_to
from ..helpers.triton_interpreter import TritonInterpreter
from .test_matrix_compile import cache, disassembled  # noqa: F401

aten = torch.ops.aten
Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
#: of x, of the weight, and the geometry
CASES: dict[str, Case] = {
    "stem": ((2, 3, 17, 15), (20, 3, 7, 7), {"stride": [2, 2], "padding": [3, 3]}),
    "3x3": ((2, 64, 9, 8), (32, 64, 3, 3), {"padding": [1, 1]}),
    "1x1": ((3, 64, 8, 8), (64, 64, 1, 1), {}),
    "1x1 with gaps": ((2, 128, 9, 9), (64, 128, 1, 1), {"stride": [2, 2]}),
    "dilated": ((2, 64, 9, 9), (40, 64, 3, 3), {"stride": [2, 1], "padding": [1, 2], "dilation": [2, 1]}),
    "one dimension": ((4, 6, 30), (10, 6, 5), {"padding": [2]}),
    "three dimensions": ((2, 4, 5, 6, 7), (8, 4, 3, 3, 3), {"padding": [1, 1, 1]}),
    "many pixels": ((4, 64, 28, 28), (64, 64, 3, 3), {"padding": [1, 1]}),
    "transposed": ((2, 64, 5, 6), (64, 32, 3, 3), {"stride": [2, 2], "padding": [1, 1], "transposed": True}),
}


class Gradient(torch.nn.Module):
    def __init__(self, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any, transposed: bool) -> None:
        super().__init__()
        self.weight, self.transposed = weight, transposed
        self.geometry = stride, padding, dilation

    def forward(self, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        none = [0] * (x.dim() - 2)
        of = aten.convolution_backward(
            grad, x, self.weight, None, *self.geometry, self.transposed, none, 1, [False, True, False]
        )
        return of[1]


def made(name: str, dtype: torch.dtype) -> tuple[DeviceProgram, tuple[torch.Tensor, ...], torch.Tensor]:
    """The program, its inputs, and the gradient in float64."""
    torch.manual_seed(0)
    size, weights, given = CASES[name]
    n = len(size) - 2
    how = {"stride": [1] * n, "padding": [0] * n, "dilation": [1] * n, "transposed": False, **given}
    x, weight = torch.randn(size).to(dtype), torch.randn(weights).to(dtype)
    y = aten.convolution(x.double(), weight.double(), None, *[how[k] for k in how], [0] * n, 1)
    grad = torch.randn(y.shape).to(dtype)
    model = Gradient(weight, **how)
    wanted = Gradient(weight.double(), **how)(grad.double(), x.double())
    return device_program(model, (grad, x)), (grad, x), wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str, dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    program, inputs, wanted = made(name, dtype)
    kernels = [launch.kernel.symbol for launch in program.code.entries[0].launches]
    assert sum(k.startswith("conv_gradient") and "_sums_" not in k for k in kernels) == 1
    assert not any(k.startswith("gemm") for k in kernels)
    (found,) = run_interpreted(program, interpreter, inputs)
    assert ((found.double() - wanted).norm() / wanted.norm()).item() < (5e-7 if dtype == torch.float32 else 4e-4)


@pytest.mark.parametrize("name", ["stem", "dilated", "one dimension", "transposed"])
def test_the_evaluator_knows_it(name: str) -> None:
    program, inputs, wanted = made(name, torch.float32)
    given = given_to(program.lowered, inputs)
    found = answer(program.lowered.program, given, {}, family="cuda")
    assert not isinstance(found, str)
    np.testing.assert_allclose(np.asarray(found[0]).reshape(wanted.shape), wanted.numpy(), rtol=1e-4, atol=1e-4)


def test_kernels_compile_without_spills(cache: Path, tmp_path: Path) -> None:  # noqa: F811
    """Operands of the matrix units are read as they lie, whichever axis is dense."""
    torch.manual_seed(0)
    for shape, kernel in (((8, 64, 28, 28), 3), ((8, 128, 14, 14), 1)):
        weight = torch.randn(shape[1], shape[1], kernel, kernel).bfloat16()
        x = torch.randn(shape).bfloat16()
        model = Gradient(weight, [1, 1], [kernel // 2] * 2, [1, 1], False)
        program = device_program(model, (x, x), device=DEVICES[90])
        kernels = [k for k in program.code.kernels if k.symbol.startswith("conv_gradient")]
        image, *sums = compile_kernels(kernels, parse_targets("cuda:sm_90")[0], BuildOptions(cache_dir=cache)).images
        assert [own.facts["spills"] for own in (image, *sums)] == [0] * len(kernels)
        code = disassembled(image.image, tmp_path)
        assert any(op.startswith("HGMMA") for op in code)
        assert "ACQBULK" in code
