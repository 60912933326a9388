"""Products of int8 matrices, exact; numbers of 8 bits, and their products with scales."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.graph.decompose.float8 import FORMATS, number, rounded
from torch import Tensor
from torch.export import Dim

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def bytes_of(*shape: int, seed: int = 0) -> Tensor:
    """Whole numbers over all of int8; the first row and column are the least, whose sums are the largest."""
    x = torch.randint(-128, 128, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)
    x[:1], x[:, :1] = -128, -128
    return x


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class IntProduct(torch.nn.Module):
    """One of an argument and a weight, and one of two arguments, the second transposed."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.register_buffer("weight", bytes_of(k, 24, seed=1))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch._int_mm(x, self.weight), torch._int_mm(x, y.t())

    def exact(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """torch's own kernel is wrong on transposed matrices of one row."""
        return x.int() @ self.weight.int(), x.int() @ y.t().int()


@pytest.mark.parametrize("k", [1, 64, 2100])
def test_int_mm(k: int, tmp_path: Path) -> None:
    """At k = 2100 sums go over 2^24, the whole numbers that a float32 holds."""
    model, batch = IntProduct(k), Dim("batch", min=1, max=64)
    shapes = {"x": {0: batch}, "y": None}
    mycc.compile(model, (bytes_of(9, k), bytes_of(40, k)), out=tmp_path / "m.pkg", dynamic_shapes=shapes)
    compiled = mycc.load(tmp_path / "m.pkg")
    for rows in (9, 1, 33):
        inputs = bytes_of(rows, k), bytes_of(40, k, seed=2)
        for got, want in zip(compiled(*inputs), model.exact(*inputs), strict=True):
            assert got.dtype == torch.int32
            assert torch.equal(got, want)


def test_int_mm_of_dynamic_depth(tmp_path: Path) -> None:
    k = Dim("k", min=1, max=4096)
    model = Call1(torch._int_mm).eval()
    mycc.compile(model, (bytes_of(9, 64), bytes_of(64, 8)), out=tmp_path / "m.pkg", dynamic_shapes=(({1: k}, {0: k}),))
    compiled = mycc.load(tmp_path / "m.pkg")
    for depth in (64, 1, 2100):
        inputs = bytes_of(9, depth), bytes_of(depth, 8)
        assert torch.equal(compiled(*inputs), torch._int_mm(*inputs))


def test_int_mm_on_a_gpu(interpreter: TritonInterpreter) -> None:
    inputs = bytes_of(33, 1100), bytes_of(40, 1100)
    program = device_program(IntProduct(1100).eval(), inputs)
    for got, want in zip(run_interpreted(program, interpreter, inputs), IntProduct(1100)(*inputs), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_conversions_are_torchs(dtype: torch.dtype) -> None:
    every = torch.arange(256).to(torch.uint8)
    want = every.view(dtype).to(torch.float32)
    assert torch.equal(number(every, dtype).nan_to_num(777), want.nan_to_num(777))
    assert torch.equal(number(every, dtype).signbit(), want.signbit())
    middles = (want[:-1] + want[1:]) / 2
    some = torch.randint(-(2**31), 2**31, (100_000,), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    for x in (
        want,
        middles,
        some.view(torch.float32),
        torch.tensor([463.9, 464.0, 464.1, 480.0, 61440.0, 65536.0, 1e30]),
    ):
        assert torch.equal(rounded(x, dtype), x.to(dtype).view(torch.uint8))


class Scaled(torch.nn.Module):
    """A layer with a weight of 8 bits: scales of the whole, or of rows and columns."""

    def __init__(self, by_rows: bool, dtype: torch.dtype, out: torch.dtype) -> None:
        super().__init__()
        self.by_rows, self.dtype, self.out = by_rows, dtype, out
        self.register_buffer("weight", normal(32, 64, seed=1).to(E4M3))
        self.register_buffer("scale", normal(1, 32).abs() + 0.5 if by_rows else torch.tensor(0.25))
        self.register_buffer("bias", normal(32).to(out))

    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(1, keepdim=True) / 448 if self.by_rows else torch.tensor(0.5)
        y = (x / scale).to(self.dtype)
        bias = self.bias if self.out is not torch.float32 else None
        return torch._scaled_mm(y, self.weight.t(), scale, self.scale, bias=bias, out_dtype=self.out)


@pytest.mark.parametrize("by_rows", [False, True], ids=["whole", "rows"])
@pytest.mark.parametrize(("dtype", "out"), [(E4M3, torch.bfloat16), (E5M2, torch.float32)], ids=str)
def test_scaled_mm(
    by_rows: bool, dtype: torch.dtype, out: torch.dtype, tmp_path: Path, interpreter: TritonInterpreter
) -> None:
    model = Scaled(by_rows, dtype, out).eval()
    x = normal(16, 64)
    shapes = ({0: Dim("batch", min=1, max=64)},)
    mycc.compile(model, (x,), out=tmp_path / "m.pkg", dynamic_shapes=shapes)
    compiled = mycc.load(tmp_path / "m.pkg")
    for rows in (16, 1, 35):
        x = normal(rows, 64)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-2, atol=1e-2)
    x = normal(16, 64)
    (found,) = run_interpreted(device_program(model, (x,)), interpreter, (x,))
    torch.testing.assert_close(found, model(x), rtol=1e-2, atol=1e-2)


def moved(x: Tensor) -> tuple[Tensor, ...]:
    """Elements that are moved, compared and read as bytes."""
    y = x.to(E4M3)
    first, second = y.split(2, 1)
    joined = torch.cat([second, first], 1).t()
    wide = torch.stack([y, y])[:, 1:]
    return joined.float(), wide.half(), y.view(torch.uint8), (y == y.flip(0)), y.to(E5M2).float(), y[:0].double()


@pytest.mark.parametrize("function", [moved], ids=lambda f: f.__name__)
def test_moves(function: Callable[[Tensor], tuple[Tensor, ...]], tmp_path: Path) -> None:
    x = torch.tensor([[0.0, -0.0, 1e30, float("nan")], [float("-inf"), 0.01, 1e-3, -448.0], [17.0, 18.0, 19.0, 3e-10]])
    mycc.compile(Call1(function).eval(), (normal(3, 4),), out=tmp_path / "m.pkg")
    for got, want in zip(mycc.load(tmp_path / "m.pkg")(x), function(x), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
