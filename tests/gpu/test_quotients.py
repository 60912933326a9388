"""Divisions as torch's CUDA kernels round them, through Triton's interpreter: by formulas of single float32 operators.
tests/gpu_runtime/test_eager_values.py compares the same with torch on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

S = 1.7
DTYPES = [torch.float16, torch.float32]  # the interpreter cuts float32 to bfloat16 where GPUs round
Function = Callable[[torch.Tensor], torch.Tensor]


def numbers(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.float32:
        bits = torch.randint(-(2**31), 2**31, (1 << 13,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
        return bits.view(dtype)
    return torch.arange(0, 1 << 16, 7, dtype=torch.int32).to(torch.int16).view(dtype)


def floor(x: torch.Tensor, y: torch.Tensor, by_y: Function) -> torch.Tensor:
    """Of a float32 quotient by y, the whole number alone is rounded to the type of x."""
    a, b = x.float(), y.float()
    rest = torch.fmod(a, b)
    quotient = by_y(a - rest)
    quotient = torch.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    down = quotient.floor().to(x.dtype).float()
    down = torch.where(quotient - down > 0.5, down + 1, down)
    down = torch.where(quotient == 0, torch.copysign(torch.zeros_like(a), by_y(a)), down)
    return torch.where(b == 0, by_y(a), down).to(x.dtype)


def of_type(value: float, x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(value, dtype=x.dtype)


#: what the model asks for, and what CUDA kernels compute; of f32 in an order of steps that no FMA changes
QUOTIENTS: dict[str, tuple[Function, Function]] = {
    "by a number": (lambda x: x / S, lambda x: (x.float() * torch.tensor(1 / S)).to(x.dtype)),
    "of a number": (lambda x: S / x, lambda x: ((1 / x.float()).to(x.dtype).float() * torch.tensor(S)).to(x.dtype)),
    "trunc": (
        lambda x: torch.div(x, S, rounding_mode="trunc"),
        lambda x: (x.float() * (1 / torch.tensor(S))).trunc().to(x.dtype),
    ),
    "floor": (lambda x: x // S, lambda x: floor(x, torch.tensor(S), lambda p: p * (1 / torch.tensor(S)))),
    "floor of tensors": (lambda x: x // x.flip(0), lambda x: floor(x, x.flip(0), lambda p: p / x.flip(0).float())),
    "floor by a tiny number": (lambda x: x // 1e-60, lambda x: x / 0.0),
    "power -2": (lambda x: x**-2, lambda x: (1 / (x * x).float()).to(x.dtype)),
    "threshold": (lambda x: F.threshold(x, S, 3.3), lambda x: torch.where(x <= of_type(S, x), of_type(3.3, x), x)),
    "hardswish": (F.hardswish, lambda x: (x.float() * (x.float() + 3).clamp(0, 6) * torch.tensor(1 / 6)).to(x.dtype)),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients(dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    x = numbers(dtype)
    program = device_program(Call1(lambda x: [ours(x) for ours, _ in QUOTIENTS.values()]), (x,))
    found = run_interpreted(program, interpreter, [x])
    for (name, (_, formula)), got in zip(QUOTIENTS.items(), found, strict=True):
        torch.testing.assert_close(got, formula(x), rtol=0, atol=0, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("count", [6, 7, 49, 768])
def test_means_are_rounded_correctly(count: int, interpreter: TritonInterpreter) -> None:
    """Of sums that are exact, tiny ones and infinities too."""
    sums = [1.0, 3.0, 3.0 * count, 0.5, -count, 1e-44 * count, 3e38, math.inf, -math.inf, math.nan]
    x = torch.zeros(len(sums), count)
    x[:, 0] = torch.tensor(sums)
    program = device_program(Call1(lambda x: x.mean(1)), (x,))
    (got,) = run_interpreted(program, interpreter, [x])
    torch.testing.assert_close(got, torch.tensor(sums) / count, rtol=0, atol=0, equal_nan=True)


def test_what_a_negative_epsilon_cancels_is_zero(interpreter: TritonInterpreter) -> None:
    """A mean of squares of 0.5 that is off by one unit would make the root finite."""
    x = torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]])
    program = device_program(Call1(lambda x: F.rms_norm(x, (6,), eps=-0.5)), (x,))
    (got,) = run_interpreted(program, interpreter, [x])
    torch.testing.assert_close(got, F.rms_norm(x, (6,), eps=-0.5), rtol=0, atol=0, equal_nan=True)


def test_divisions_by_sizes_multiply_by_the_reciprocal(interpreter: TritonInterpreter) -> None:
    x = torch.randn(97, generator=torch.Generator().manual_seed(0))
    program = device_program(Call1(lambda x: x / x.shape[0]), (x,), (({0: torch.export.Dim("n", min=2, max=200)},),))
    (got,) = run_interpreted(program, interpreter, [x])
    assert torch.equal(got, x * torch.tensor(1 / 97))
