"""Sorts, factorisations of matrices and special functions as GPU kernels, through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import parse_targets
from mycc.runtime.errors import CompileError

from ..helpers.device_programs import DeviceProgram, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

Function = Callable[..., Any]


def program(function: Function, *inputs: torch.Tensor, **options: Any) -> DeviceProgram:
    return device_program(Call1(function).eval(), inputs, **options)


def ties(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(4)).to(dtype)
    if dtype.is_floating_point:
        x.view(-1)[3::40] = float("nan")
        x.view(-1)[5::50] = float("-inf")
    return x


def matrices(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def ascending(x: torch.Tensor) -> Any:
    return torch.sort(x, dim=-1, stable=True)


def descending(x: torch.Tensor) -> Any:
    return torch.sort(x, dim=-1, stable=True, descending=True)


DTYPES = (torch.float32, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [ascending, descending], ids=["ascending", "descending"])
def test_stable_sorts(function: Function, dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    x = ties(3, 150, dtype=dtype)
    values, places = run_interpreted(program(function, x), interpreter, (x,))
    wanted = function(x)
    assert torch.equal(places, wanted.indices)
    assert torch.equal(values.nan_to_num(99), wanted.values.nan_to_num(99))


def test_long_rows_are_merged_from_runs(interpreter: TritonInterpreter) -> None:
    x = ties(1, 2500)
    compiled = program(descending, x)
    assert [k.symbol for k in compiled.code.kernels] == ["sort_f32", "sort_f32_merge", "sort_f32_merge_1"]
    _, places = run_interpreted(compiled, interpreter, (x,))
    assert torch.equal(places, descending(x).indices)


def test_a_row_of_any_length(interpreter: TritonInterpreter) -> None:
    sizes = (({1: torch.export.Dim("length", min=1, max=2000)},),)
    compiled = program(ascending, ties(2, 40), dynamic_shapes=sizes)
    for length in (1, 40, 1300):
        x = ties(2, length)
        assert torch.equal(run_interpreted(compiled, interpreter, (x,))[1], ascending(x).indices)


def test_the_first_of_many(interpreter: TritonInterpreter) -> None:
    x = matrices(2, 1500)
    values, places = run_interpreted(program(lambda x: x.topk(7), x), interpreter, (x,))
    assert torch.equal(values, x.topk(7).values)
    assert torch.equal(x.gather(1, places), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_order_statistics(dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    x = ties(4, 51, dtype=dtype).nan_to_num(50)

    def statistics(x: torch.Tensor) -> Any:
        return x.mode(-1).values, x.median(-1).values, x.kthvalue(7, -1).values

    for y, wanted in zip(run_interpreted(program(statistics, x), interpreter, (x,)), statistics(x), strict=True):
        assert torch.equal(y, wanted)


def rebuilt_eigh(x: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(x + x.mT)
    return (vectors * values.unsqueeze(-2)) @ vectors.mT


def rebuilt_svd(x: torch.Tensor) -> torch.Tensor:
    u, s, v = torch.linalg.svd(x, full_matrices=True)
    return torch.cat(((u[..., : s.shape[-1]] * s.unsqueeze(-2)) @ v[..., : s.shape[-1], :], u.mT @ u), -1)


def hollow(x: torch.Tensor) -> torch.Tensor:
    """Symmetric with zeros on the diagonal, so that pivots are blocks."""
    return (x + x.mT) * (1 - torch.eye(x.shape[-1], dtype=x.dtype))


LINEAR = {
    "lu": (lambda x: torch.linalg.lu_factor_ex(x), (2, 9, 5)),
    "lu_wide": (lambda x: torch.linalg.lu_factor_ex(x), (5, 8)),
    "lu_singular": (lambda x: torch.linalg.lu_factor_ex(x * 0), (4, 4)),
    "solve": (lambda x: torch.linalg.solve(x, x.flip(-1)[..., :3]), (2, 7, 7)),
    "lower": (lambda x: torch.linalg.solve_triangular(x.tril() + 4 * torch.eye(20), x, upper=False), (2, 20, 20)),
    "upper": (lambda x: torch.linalg.solve_triangular(x.triu() + 4 * torch.eye(6), x, upper=True), (2, 6, 6)),
    "unit": (lambda x: torch.linalg.solve_triangular(x.tril(), x, upper=False, unitriangular=True), (2, 4, 4)),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(7)), (2, 7, 7)),
    "qr": (lambda x: torch.linalg.qr(x), (2, 9, 4)),
    "qr_wide": (lambda x: torch.linalg.qr(x), (4, 9)),
    "eigh": (rebuilt_eigh, (2, 6, 6)),
    "svd": (rebuilt_svd, (2, 6, 4)),
    "svd_of_rank_1": (lambda x: rebuilt_svd(x[:, :1] @ x[:1, :4]), (6, 6)),
    "ldl": (lambda x: torch.linalg.ldl_factor_ex(x + x.mT), (2, 9, 9)),
    "ldl_of_blocks": (lambda x: torch.linalg.ldl_factor_ex(hollow(x)), (3, 8, 8)),
    "ldl_of_zeros": (lambda x: torch.linalg.ldl_factor_ex(x * 0), (3, 3)),
    "ldl_solve": (lambda x: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(hollow(x)), x[..., :3]), (2, 8, 8)),
    "ldl_solve_one": (lambda x: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(x + x.mT), x[..., :1]), (7, 7)),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x), (2, 5, 5)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_factorisations_against_float64(name: str, interpreter: TritonInterpreter) -> None:
    function, shape = LINEAR[name]
    x = matrices(*shape)
    wanted = function(x.double())
    found = run_interpreted(program(function, x), interpreter, (x,))
    for y, want in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(y.double(), want.double(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["random", "symmetric", "cyclic", "triangular", "zero", "one"])
def test_general_eigenvalues(kind: str, interpreter: TritonInterpreter) -> None:
    x = {
        "random": matrices(2, 6, 6), "symmetric": matrices(5, 5) + matrices(5, 5).mT,
        "cyclic": torch.eye(4).roll(1, 0), "triangular": matrices(5, 5).triu(), "zero": torch.zeros(3, 3),
        "one": matrices(1, 1),
    }[kind]  # fmt: skip
    program_ = program(lambda x: torch.linalg.eig(x), x)
    values, vectors = run_interpreted(program_, interpreter, (x,))
    assert values.dtype == vectors.dtype == torch.complex64
    wanted = torch.linalg.eigvals(x.double())
    gaps = (values.unsqueeze(-1) - wanted.unsqueeze(-2)).abs()
    assert float(gaps.min(-1).values.max()) < 1e-5 > float(gaps.min(-2).values.max())
    torch.testing.assert_close(x.to(vectors.dtype) @ vectors, vectors * values.unsqueeze(-2), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(vectors.abs().square().sum(-2), torch.ones(values.shape))


SPECIAL = {
    "digamma": torch.digamma, "i0e": torch.special.i0e, "i1e": torch.special.i1e, "airy": torch.special.airy_ai,
    "k1": torch.special.scaled_modified_bessel_k1, "sphere": torch.special.spherical_bessel_j0,
    "zeta": lambda x: torch.special.zeta(x.abs() + 1.5, x.abs() + 0.5),
    "igamma": lambda x: torch.special.gammainc(x.abs(), x.flip(0).abs()),
    "igammac": lambda x: torch.special.gammaincc(x.abs(), x.flip(0).abs()),
    "hermite": lambda x: torch.special.hermite_polynomial_h(x / 4, 5),
    "frexp": lambda x: torch.frexp(x).mantissa, "exponent": lambda x: torch.frexp(x).exponent,
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_against_float64(name: str, interpreter: TritonInterpreter) -> None:
    x = torch.cat((torch.linspace(-12, 12, 37) + 0.01, torch.tensor([30.0, 1e-3])))
    (found,) = run_interpreted(program(SPECIAL[name], x), interpreter, (x,))
    torch.testing.assert_close(found.double(), SPECIAL[name](x.double()).double(), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", ["chebyshev_polynomial_v", "legendre_polynomial_p", "hermite_polynomial_he"])
def test_polynomials_overflow_as_in_torch(name: str, interpreter: TritonInterpreter) -> None:
    x = torch.tensor([0.0, 1.0, -1.0, 2.0, -7.0, 0.3, 255.0, -(2.0**31)])
    n = torch.tensor([-1.0, 0.0, 1.0, 3.0, 9.0, 100.0, 129.0, 9.3e18])
    x, n = (t.flatten() for t in torch.meshgrid(x, n, indexing="ij"))
    function = getattr(torch.special, name)
    (found,) = run_interpreted(program(lambda x, n: function(x, n), x, n), interpreter, (x, n))
    torch.testing.assert_close(found, function(x, n), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_divisors_of_the_least_integer(interpreter: TritonInterpreter) -> None:
    least = -(2**31)
    row = torch.tensor([least, least + 1, -1, 0, 2, 6, -6, 7], dtype=torch.int32)
    a, b = (t.flatten() for t in torch.meshgrid(row, row, indexing="ij"))
    (found,) = run_interpreted(program(lambda a, b: torch.gcd(a, b), a, b), interpreter, (a, b))
    assert torch.equal(found, torch.gcd(a, b))


def test_a_matrix_that_is_too_large_is_refused_with_its_line() -> None:
    with pytest.raises(CompileError, match=r"cholesky.*test_routine_kernels.py:\d+.*for a GPU: .*at most 128"):
        program(lambda x: torch.linalg.cholesky(x), torch.eye(200))


def test_a_package_says_what_a_gpu_cannot_do(tmp_path: Any) -> None:
    with pytest.raises(CompileError, match=r"for a GPU") as refused:
        mycc.compile(
            Call1(lambda x: torch.linalg.cholesky(x)).eval(), (torch.eye(200),), out=tmp_path / "m.pkg",
            target="cuda:sm_90",
        )  # fmt: skip
    assert "compile for the CPU" in str(refused.value)


@pytest.mark.parametrize("chip", [80, 90, 100])
def test_routines_compile_for_every_chip(chip: int, tmp_path: Any) -> None:
    x = matrices(2, 6, 6)

    def function(x: torch.Tensor) -> Any:
        return ascending(x.reshape(2, 36)), torch.linalg.svd(x), torch.linalg.cholesky_ex(x), x.cumsum(-1)

    kernels = program(function, x, device=DEVICES[chip]).code.kernels
    (target,) = parse_targets(f"cuda:sm_{chip}")
    built = compile_kernels(kernels, target, BuildOptions())
    assert not any(image.facts["spills"] for image in built.images)


def test_sums_that_end_loops_are_equal_in_all_lanes(tmp_path: Any) -> None:
    """A lane that rounds a product and a sum once reads another sum than its neighbour, and may leave a loop alone."""
    x = matrices(3, 5, 5)
    kernels = program(lambda x: (torch.linalg.svd(x), torch.linalg.eigh(x + x.mT)), x, device=DEVICES[80]).code.kernels
    (target,) = parse_targets("cuda:ptx")
    loops = [kernel for kernel in kernels if "while " in kernel.source]
    images = compile_kernels(loops, target, BuildOptions()).images
    assert len(images) == 2
    assert not any(b"fma." in image.image or b"mul.f64" in image.image for image in images)


@pytest.mark.gpu
def test_loops_of_factorisations_end_on_a_device(tmp_path: Any) -> None:
    """So many matrices that the last sweeps of some have nothing but rounding errors to turn away."""
    x = matrices(500, 5, 5)

    def values(x: torch.Tensor) -> Any:
        return torch.linalg.svdvals(x), torch.linalg.svdvals(x[:, :3]), torch.linalg.eigvalsh(x + x.mT)

    model = mycc.load(mycc.compile(Call1(values).eval(), (x,), out=tmp_path / "m.pkg", target="cuda"))
    for y, wanted in zip(model(x.cuda()), values(x.double()), strict=True):
        torch.testing.assert_close(y.cpu().double(), wanted, rtol=2e-5, atol=2e-5)


def test_numbers_among_operands_of_float64(tmp_path: Any) -> None:
    kernels = program(lambda x: torch.pow(2.5, x), torch.zeros(9, dtype=torch.float64), device=DEVICES[90]).code.kernels
    (target,) = parse_targets("cuda:sm_90")
    assert compile_kernels(kernels, target, BuildOptions()).images


def test_matrices_without_elements(interpreter: TritonInterpreter) -> None:
    x = torch.zeros(2, 0, 0)
    values, vectors = run_interpreted(program(lambda x: torch.linalg.eig(x), x), interpreter, (x,))
    assert (values.shape, vectors.shape) == ((2, 0), (2, 0, 0))


def test_general_factorisations_compile(tmp_path: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.linalg.eig(x), torch.linalg.ldl_solve(*torch.linalg.ldl_factor(x), x)

    kernels = program(function, matrices(2, 6, 6), device=DEVICES[90]).code.kernels
    (target,) = parse_targets("cuda:sm_90")
    built = compile_kernels(kernels, target, BuildOptions())
    assert max(image.facts["spills"] for image in built.images) <= 16  # around divisions of float64
