"""view(dtype): the bits of elements as elements of another type, on a CPU and on a GPU, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import mycc
import pytest
import torch
from torch import Tensor
from torch.export import Dim

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TYPES = (*INTEGERS, *FLOATS)
PAIRS = [(a, b) for a, b in itertools.product(TYPES, TYPES) if a != b]


def numbers(dtype: torch.dtype, rows: int = 4) -> Tensor:
    """Numbers of every size, with zeros of both signs, infinities and NaN."""
    generator = torch.Generator().manual_seed(rows)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        x = torch.randint(max(info.min, -(2**62)), min(info.max, 2**62), (rows, 16), generator=generator)
        x[0, :2] = torch.tensor([info.min, info.max])
        return x.to(dtype)
    x = torch.randn(rows, 16, generator=generator, dtype=torch.float64) * 10.0 ** torch.arange(-8, 8)
    x[0, :6] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0])
    return x.to(dtype)


def bits(x: Tensor) -> Tensor:
    """For a comparison that tells zeros and takes no NaN for another."""
    return x.view(torch.uint8)


def all_pairs(*inputs: Tensor) -> Iterator[Tensor]:
    given = dict(zip(TYPES, inputs, strict=True))
    for a, b in PAIRS:
        yield given[a].view(b)


def pairs(*inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(all_pairs(*inputs))


def same(got: Sequence[Tensor], want: Sequence[Tensor], least: float = 0.0) -> None:
    """least: the magnitude of bf16 numbers from which on they are compared."""
    for (a, b), g, w in zip(PAIRS, got, want, strict=True):
        assert g.dtype == w.dtype
        if b in (torch.float16, torch.bfloat16):  # any bits: a NaN of a narrow float becomes a quiet one
            assert torch.equal(g.isnan(), w.isnan()), f"{a} as {b}"
            compared = ~(w.isnan() | ((w.abs() < least) & (w != 0)))
            g, w = (t.where(compared, torch.ones_like(t)) for t in (g, w))
        assert torch.equal(bits(g), bits(w)), f"{a} as {b}"


def test_all_pairs(tmp_path: Path) -> None:
    inputs = tuple(map(numbers, TYPES))
    rows = tuple({0: Dim("rows", min=1, max=64)} for _ in TYPES)
    mycc.compile(Call1(pairs).eval(), inputs, out=tmp_path / "m.pkg", dynamic_shapes=(rows,))
    model = mycc.load(tmp_path / "m.pkg")
    for count in (4, 1, 33):
        inputs = tuple(numbers(t, count) for t in TYPES)
        same(model(*inputs), pairs(*inputs))


def test_all_pairs_on_a_gpu(interpreter: TritonInterpreter) -> None:
    inputs = tuple(map(numbers, TYPES))
    got = run_interpreted(device_program(Call1(pairs).eval(), inputs), interpreter, inputs)
    same(got, pairs(*inputs), 2.0**-126)  # the interpreter does not keep bf16's subnormals


def absolute(x: Tensor) -> Tensor:
    """Bytes of what was transposed, without the sign bits: pytorch#185515."""
    turned = x.t().contiguous().view(torch.uint8)
    return (turned.view(torch.int32) & 0x7FFFFFFF).view(torch.float32)


def of_a_slice(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x[1:, 2:6].view(torch.int16),
        x.t()[2:4].t().view(torch.int64),
        x.t().view(torch.int32),
        x[0, 1].view(torch.int32),
    )


def of_truths(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x > 0).view(torch.uint8), (x > 0).view(torch.uint8).view(torch.bool)


def written(x: Tensor) -> Tensor:
    y = x.clone()
    y.view(torch.int32).bitwise_and_(0x7FFFFFFF)
    return y


def computed(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of values that no memory holds: narrow ones are rounded first."""
    return (x * 0.5).view(torch.int32), (x * 0.5).half().view(torch.int16)


def of_nothing(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:0].view(torch.uint8), x[:, :0].view(torch.int64)


PROGRAMS: list[Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = [
    absolute, of_a_slice, of_truths, written, computed, of_nothing,
]  # fmt: skip


def outcome(function: Callable[[Tensor], Tensor | tuple[Tensor, ...]], x: Tensor) -> tuple[Tensor, ...]:
    result = function(x)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(function: Callable[[Tensor], Tensor], tmp_path: Path, interpreter: TritonInterpreter) -> None:
    x = numbers(torch.float32)[:, :8].nan_to_num()
    mycc.compile(Call1(function).eval(), (x,), out=tmp_path / "m.pkg")
    want = outcome(function, x)
    found = mycc.load(tmp_path / "m.pkg")(x)
    on_gpu = run_interpreted(device_program(Call1(function).eval(), (x,)), interpreter, (x,))
    for got in (found if isinstance(found, tuple) else (found,), on_gpu):
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            assert torch.equal(g, w)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_neighbours_of_all_16_bit_numbers(dtype: torch.dtype, tmp_path: Path) -> None:
    every = torch.arange(65536).to(torch.int16).view(dtype)
    package = mycc.load(mycc.compile(Call1(torch.nextafter).eval(), (every, every.flip(0)), out=tmp_path / "m.pkg"))
    for towards in (0.0, -0.0, float("inf"), float("-inf"), 1.5):
        other = torch.full_like(every, towards)
        found, want = torch.as_tensor(package(every, other)), torch.nextafter(every, other)
        same = (found.view(torch.int16) == want.view(torch.int16)) | (found.isnan() & want.isnan())
        assert bool(same.all())
