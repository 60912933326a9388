"""Values at the edges on a real GPU, equal to torch's on that GPU: numbers beside 16-bit floats, divisions, casts,
places of pools, NaN in order, roundings between operators. Marked `gpu`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
import torch.nn.functional as F

from ..gpu.test_edge_values import CASES
from ..ops.pool_samples import OF_FLOATS, POOLS
from ..ops.pool_samples import inputs as windows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

#: what docs/correctness.md lists as unlike eager on a GPU
LISTED = {"gelu in 16 bits"}

S, NAN, INF = 1.7, math.nan, math.inf
Function = Callable[[torch.Tensor], torch.Tensor]

#: equal bit by bit: one operator each, whose steps are torch's own
BESIDE: dict[str, Function] = {
    "eq": lambda x: x == S,
    "gt": lambda x: x > S,
    "add": lambda x: x + S,
    "rsub": lambda x: S - x,
    "mul": lambda x: x * S,
    "div": lambda x: x / S,
    "rdiv": lambda x: S / x,
    "fmod": lambda x: torch.fmod(x, S),
    "remainder": lambda x: x % S,
    "trunc": lambda x: torch.div(x, S, rounding_mode="trunc"),
    "floor": lambda x: x // S,
    "tensor trunc": lambda x: torch.div(x, x.flip(0), rounding_mode="trunc"),
    "tensor floor": lambda x: torch.div(x, x.flip(0), rounding_mode="floor"),
    "tensor div": lambda x: x / x.flip(0),
    "add alpha": lambda x: torch.add(x, x.flip(0), alpha=S),
    "threshold": lambda x: F.threshold(x, S, 3.3),
    "hardshrink": lambda x: F.hardshrink(x, S),
    "softshrink": lambda x: F.softshrink(x, S),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "cube": lambda x: x**3,
    "power -2": lambda x: x**-2,
    "round 2": lambda x: torch.round(x, decimals=2),
    "round -1": lambda x: torch.round(x, decimals=-1),
    "hardtanh": lambda x: F.hardtanh(x, -S, 3.3),
    "addcmul": lambda x: torch.addcmul(x, x.flip(0), x.roll(7), value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x.flip(0), x.roll(7), value=0.3),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "sqrt": lambda x: x**0.5,
    "tiny": lambda x: x.clamp(min=1e-40),
}


def on_device(function: Callable[..., Any], folder: Path, *inputs: torch.Tensor, **options: Any) -> tuple[Any, Any]:
    """What a package and torch give for the same tensors on the GPU, on the CPU's side."""
    path = mycc.compile(function, inputs, out=folder / "m.pkg", target="cuda", verify=False, options=options)
    here = tuple(x.cuda() for x in inputs)
    found, wanted = mycc.load(path)(*here), function(*here)
    return [y.cpu() for y in found], [y.cpu() for y in wanted]


def numbers(dtype: torch.dtype) -> torch.Tensor:
    if dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(0)
        x = (
            torch.randint(-(2**31), 2**31, (1 << 14,), generator=generator)
            .to(torch.int32)
            .view(torch.float32)
            .to(dtype)
        )
    else:
        x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    return torch.where(x.isnan(), torch.full_like(x, NAN), x)


def differing(a: torch.Tensor, b: torch.Tensor) -> int:
    a, b = a.double(), b.double()
    return int((~((a == b) | (a.isnan() & b.isnan()))).sum())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_beside_tensors(dtype: torch.dtype, tmp_path: Path) -> None:
    found, wanted = on_device(lambda x: [f(x) for f in BESIDE.values()], tmp_path, numbers(dtype))
    off = {n: differing(a, b) for n, a, b in zip(BESIDE, found, wanted, strict=True)}
    assert not {n: count for n, count in off.items() if count}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_casts_to_integers(dtype: torch.dtype, tmp_path: Path) -> None:
    x = [NAN, INF, -INF, 1e20, -1e20, 3e9, -3e9, -1.5, 100.9, 300.0, -300.0, 40000.0, 2147483648.0, 4294967296.5, -0.5]
    types = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    found, wanted = on_device(lambda x: [x.to(t) for t in types], tmp_path, torch.tensor(x).to(dtype))
    assert [y.tolist() for y in found] == [y.tolist() for y in wanted]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_powers_of_integers(dtype: torch.dtype, tmp_path: Path) -> None:
    x, y = (t.flatten().to(dtype) for t in torch.meshgrid(torch.arange(-6, 12), torch.arange(40), indexing="ij"))
    found, wanted = on_device(lambda x, y: [x**y, x**3, 3**y, (x**y) // 5], tmp_path, x, y)
    assert [y.tolist() for y in found] == [y.tolist() for y in wanted]


def test_wide_integers_of_two_numbers(tmp_path: Path) -> None:
    def chosen(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(x > 0, 100000, 200000) * 100000, torch.where(x > 0, 3000000000, -5)]

    found, wanted = on_device(chosen, tmp_path, torch.arange(-5, 6))
    assert [y.tolist() for y in found] == [y.tolist() for y in wanted]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_indices_of_pools(dtype: torch.dtype, tmp_path: Path) -> None:
    pools = POOLS | OF_FLOATS
    for x in windows(dtype):
        found, wanted = on_device(lambda x: [t for f in pools.values() for t in f(x)], tmp_path, x)
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_nan_in_order(tmp_path: Path) -> None:
    x = torch.tensor([[3.0, NAN, -INF, 0.5], [INF, 2.0, -1.0, 7.0], [-INF, -2.0, NAN, 4.0]])

    def ordered(x: torch.Tensor) -> list[torch.Tensor]:
        return [*x.sort(-1), *x.topk(3, -1), *x.max(-1), *x.min(-1), x.argmax(), x.argmin(), *x.cummax(-1)]

    found, wanted = on_device(ordered, tmp_path, x)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_roundings_between_operators(dtype: torch.dtype, tmp_path: Path) -> None:
    x, y = (torch.randn(64, 32, generator=torch.Generator().manual_seed(i)).to(dtype) for i in range(2))

    def chain(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [((x + y) * y - x).sub(y) * x]

    found, wanted = on_device(chain, tmp_path, x, y, **{"graph.eager_roundings": True})
    assert torch.equal(found[0], wanted[0])


@pytest.mark.parametrize("name", sorted(CASES.keys() - LISTED))
def test_signs_of_zero_and_values_at_edges(name: str, tmp_path: Path) -> None:
    function, inputs, _ = CASES[name]
    (found,), (wanted,) = on_device(lambda *x: [function(*x)], tmp_path, *inputs)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    known = ~wanted.isnan()
    assert torch.equal(found.signbit()[known], wanted.signbit()[known])
