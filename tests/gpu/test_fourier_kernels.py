"""Fourier transforms as GPU kernels, through Triton's interpreter, against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels
from mycc.compiler.ir.fourier import factors
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import parse_targets
from mycc.compiler.schedule.gpu.routine_plans import transforms
from mycc.runtime.errors import CompileError

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

fft = torch.fft
WINDOW = torch.hann_window(32)
#: one value, one pass, a large prime factor, two passes; a prime that goes by Bluestein's algorithm
SIZES = (1, 2, 15, 29, 31 * 6, 96, 400, 37)


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def normal(*shape: int) -> torch.Tensor:
    return torch.complex(real(*shape), real(*shape[::-1]).reshape(shape))


Case = tuple[Callable[..., Any], torch.Tensor]
CASES: dict[str, Case] = {
    **{f"fft_{n}": (fft.fft, normal(3, n)) for n in SIZES},
    **{f"ifft_{n}": (fft.ifft, normal(2, n)) for n in (1, 96, 37)},
    **{f"rfft_{n}": (fft.rfft, real(3, n)) for n in SIZES},
    **{f"irfft_{n}": (lambda x, n=n: fft.irfft(x, n), normal(2, n // 2 + 1)) for n in SIZES},
    "three_passes": (fft.fft, normal(2, 578)),
    "irfft_74": (lambda x: fft.irfft(x, 74), normal(2, 38)),
    "other_dimension": (lambda x: fft.fft(x, 40, dim=0, norm="ortho"), normal(33, 3)),
    "hfft": (lambda x: fft.hfft(x, 12) + fft.hfft(x, 12, norm="ortho"), normal(3, 7)),
    "ihfft": (fft.ihfft, real(3, 12)),
    "fft2": (lambda x: fft.ifft2(fft.fft2(x) * 2), normal(2, 6, 10)),
    "rfftn": (lambda x: fft.irfftn(fft.rfftn(x), s=x.shape[-2:], dim=(1, 2)), real(2, 6, 10)),
    "stft": (lambda x: torch.stft(x, 32, 8, window=WINDOW.to(x.dtype), return_complex=True), real(2, 200)),
    "istft": (
        lambda x: torch.istft(
            torch.stft(x, 32, 8, window=WINDOW.to(x.dtype), return_complex=True), 32, 8, window=WINDOW.to(x.dtype)
        ),
        real(2, 200),
    ),
}


def double(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128) if x.is_complex() else x.double()


@pytest.mark.parametrize("name", CASES)
def test_transforms_against_float64(name: str, interpreter: TritonInterpreter) -> None:
    function, x = CASES[name]
    (found,) = run_interpreted(device_program(Call1(function).eval(), (x,)), interpreter, (x,))
    want = function(double(x))
    assert found.dtype == function(x).dtype
    assert float((double(found) - want).abs().max() / want.abs().max()) < 1e-6


@pytest.mark.parametrize("n", [400, 41])
def test_transforms_in_float64(n: int, interpreter: TritonInterpreter) -> None:
    x = double(normal(2, n))
    (found,) = run_interpreted(device_program(Call1(fft.fft).eval(), (x,)), interpreter, (x,))
    torch.testing.assert_close(found, fft.fft(x), rtol=0, atol=2e-13 * float(fft.fft(x).abs().max()))


def test_sizes_that_are_known_at_run_time(interpreter: TritonInterpreter) -> None:
    sizes = (({1: torch.export.Dim("n", min=1, max=100)},),)
    for name, function in {"rfft": fft.rfft, "inverse": lambda x: fft.ihfft(x).real}.items():
        program = device_program(Call1(function).eval(), (real(2, 40),), dynamic_shapes=sizes)
        for n in (1, 2, 64, 77, 100):
            x = real(2, n)
            (found,) = run_interpreted(program, interpreter, (x,))
            torch.testing.assert_close(double(found), function(x.double()), rtol=1e-6, atol=2e-5, msg=f"{name} {n}")


def test_a_size_without_a_bound_is_refused() -> None:
    sizes = (({1: torch.export.Dim("n", min=1)},),)
    with pytest.raises(CompileError, match=r"Fourier transform needs an upper bound"):
        device_program(Call1(lambda x: fft.rfft(x)).eval(), (real(2, 40),), dynamic_shapes=sizes)


def test_factors_are_few_and_alike() -> None:
    wanted = {1: (1,), 32: (32,), 400: (25, 16), 4096: (16, 16, 16), 29**3: (29, 29, 29), 31 * 4: (31, 4)}
    assert {n: factors(n) for n in wanted} == wanted


def test_passes_that_are_one_kernel() -> None:
    radices = {n: [tuple(step.radix for step in found) for found in transforms(n, "f32")] for n in (400, 578)}
    assert radices == {400: [(25, 16)], 578: [(17,), (17,), (2,)]}
    assert [len(found) for found in transforms(400, "f64")] == [1, 1]


@pytest.mark.slow  # test_library_kernels.py and test_matrix_compile.py compile kernels for chips
def test_passes_compile_without_spills(tmp_path: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        return fft.fft(x), fft.irfft(fft.rfft(x.real[:, :400])), fft.fft(x[:, :96].to(torch.complex128))

    code = device_program(Call1(function).eval(), (normal(64, 1024),), device=DEVICES[90]).code
    (target,) = parse_targets("cuda:sm_90")
    built = compile_kernels(code.kernels, target, BuildOptions())
    assert not any(image.facts["spills"] for image in built.images)
