"""Convolutions of any kind as GPU kernels, through Triton's interpreter, against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.ir.structured import Conv
from mycc.compiler.machine.gpu import DEVICES
from torch import nn

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3}


@dataclass(frozen=True)
class Case:
    """A module, the shape of its input; dynamic: another batch that it is run with."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dynamic: bool = False
    kinds: tuple[str, ...] = field(default=("f32", "f16"))


def transposed(rank: int, *args: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1](*args, **options)


CASES = {
    "conv3d": Case(lambda: nn.Conv3d(16, 24, 3, padding=1), (2, 16, 4, 5, 3)),
    "conv3d_strided": Case(lambda: nn.Conv3d(16, 8, (2, 3, 1), (1, 2, 2), dilation=(2, 1, 1)), (1, 16, 5, 7, 4)),
    "conv3d_few_channels": Case(lambda: nn.Conv3d(3, 8, (3, 3, 2), 2, padding=(1, 1, 0)), (1, 3, 5, 6, 5)),
    "conv3d_of_one_pixel": Case(lambda: nn.Conv3d(3, 8, 3, padding=1), (1, 3, 1, 1, 1)),
    "conv3d_groups": Case(lambda: nn.Conv3d(8, 12, 2, groups=4), (1, 8, 3, 4, 3)),
    "conv3d_depthwise": Case(lambda: nn.Conv3d(6, 6, 3, padding=1, groups=6), (1, 6, 3, 4, 3)),
    "conv3d_1x1": Case(lambda: nn.Conv3d(16, 16, 1), (2, 16, 2, 3, 2)),
    "conv1d_same": Case(lambda: nn.Conv1d(16, 16, 4, padding="same", dilation=2), (2, 16, 11)),
    "transposed1d": Case(transposed(1, 16, 12, 4, 2, 1), (2, 16, 7)),
    "transposed2d": Case(transposed(2, 16, 24, 3, 2, 1, 1), (2, 16, 4, 5), dynamic=True),
    "transposed2d_2x2": Case(transposed(2, 16, 8, 2, 2), (1, 16, 4, 3)),
    "transposed2d_cut": Case(transposed(2, 16, 8, 2, 2, padding=1), (1, 16, 4, 3)),
    "transposed2d_holes": Case(transposed(2, 4, 8, 1, 3), (1, 4, 3, 4)),
    "transposed2d_dilated": Case(transposed(2, 8, 6, 3, 2, 2, 1, dilation=2), (1, 8, 4, 5)),
    "transposed2d_plain": Case(transposed(2, 8, 6, 3, padding=1, bias=False), (1, 8, 4, 5)),
    "transposed2d_groups": Case(transposed(2, 8, 12, 3, 2, 1, groups=4), (1, 8, 4, 4)),
    "transposed2d_depthwise": Case(transposed(2, 20, 20, 4, 2, 1, groups=20), (2, 20, 3, 4)),
    "transposed3d": Case(transposed(3, 8, 6, (2, 3, 2), (2, 1, 2), (0, 1, 1)), (1, 8, 3, 2, 3)),
    "transposed_relu": Case(lambda: nn.Sequential(nn.ConvTranspose2d(8, 16, 3, 2, 1), nn.GELU()), (1, 8, 4, 5)),
    "unbatched": Case(transposed(2, 8, 6, 3), (8, 4, 5)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
@pytest.mark.parametrize("name", CASES)
def test_layers_against_float64(name: str, dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    case = CASES[name]
    torch.manual_seed(len(name))
    model = case.model().eval().to(dtype)
    dynamic = ({0: torch.export.Dim("batch", min=1, max=9)},) if case.dynamic else None
    program = device_program(model, (torch.randn(case.shape).to(dtype),), dynamic_shapes=dynamic)
    x = torch.randn(3 if case.dynamic else case.shape[0], *case.shape[1:]).to(dtype)
    (found,) = run_interpreted(program, interpreter, (x,))
    check(found, model.double()(x.double()).detach(), dtype)


def check(found: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.dtype == dtype
    assert float((found.double() - want).norm() / want.norm()) <= TOLERANCE[dtype]


#: functions of x and a weight that is an input, both shapes
GIVEN: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), (2, 16, 9), (8, 16, 3)),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2), (1, 16, 6, 5), (8, 16, 3, 2)),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), (1, 8, 5, 5), (6, 4, 3, 3)),
    "depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=16), (1, 16, 5, 4), (16, 1, 3, 3)),
    "conv3d": (lambda x, w: F.conv3d(x, w), (1, 4, 3, 4, 3), (5, 4, 2, 2, 2)),
    "transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, groups=2),
        (1, 8, 4, 3),
        (8, 6, 4, 3),
    ),
    "transposed_depthwise": (lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=8), (1, 8, 4, 3), (8, 1, 3, 3)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_weight_that_is_an_input(name: str, dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    function, *shapes = GIVEN[name]
    generator = torch.Generator().manual_seed(3)
    inputs = tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    program = device_program(Call1(function).eval(), inputs)
    assert any(isinstance(node, Conv) for node in program.schedule.program.nodes)
    (found,) = run_interpreted(program, interpreter, inputs)
    check(found, function(*(x.double() for x in inputs)), dtype)


def test_float64_and_whole_numbers_element_by_element(interpreter: TritonInterpreter) -> None:
    x, w = torch.arange(60.0).reshape(1, 3, 4, 5).double(), torch.arange(24.0).reshape(2, 3, 2, 2).double()
    (found,) = run_interpreted(device_program(Call1(F.conv2d).eval(), (x, w)), interpreter, (x, w))
    assert torch.equal(found, F.conv2d(x, w))


def test_the_chips_own_tiles_fit(interpreter: TritonInterpreter) -> None:
    """Kernels for every chip render, with the tiles of its own table."""
    for chip in DEVICES.values():
        program = device_program(
            nn.ConvTranspose3d(64, 64, 4, 2, 1).eval(), (torch.randn(1, 64, 8, 8, 8),), device=chip
        )
        assert len(program.code.entries[0].launches) >= 8
