"""Numbers beside tensors as eager takes them, and divisions: every operator at every number of a 16-bit type, exactly.

Eager rounds a Python number to the type of the tensor in most operators (comparisons, sums, fmod), and not in others
(products, quotients, thresholds); the numbers here are none of the 16-bit types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
import torch.nn.functional as F

S, LOW, T = 1.7, 0.1, torch.tensor(1.7)
Function = Callable[[torch.Tensor], torch.Tensor]


def beside(name: str, number: float) -> Function:
    return lambda x: getattr(torch, name)(x, number)


#: results that are equal bit by bit, of floats and of integers
EXACT: dict[str, Function] = {
    **{name: beside(name, S) for name in ("eq", "ne", "lt", "le", "gt", "ge", "isin")},
    **{f"{name} 3001": beside(name, 3001) for name in ("eq", "gt", "add", "fmod", "div")},
    "add": lambda x: x + S,
    "sub": lambda x: x - S,
    "rsub": lambda x: S - x,
    "mul": lambda x: x * S,
    "div": lambda x: x / S,
    "rdiv": lambda x: S / x,
    "trunc of quotient": lambda x: torch.div(x, S, rounding_mode="trunc"),
    "floor of quotient": lambda x: torch.div(x, S, rounding_mode="floor"),
    "floor division": lambda x: x // S,
    "floor of reciprocal": lambda x: S // x,
    "fmod": lambda x: torch.fmod(x, S),
    "remainder": lambda x: x % S,
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "tensor mul": lambda x: x * T,
    "mul of tensor": lambda x: T * x,
    "tensor add": lambda x: x + T,
    "tensor sub": lambda x: T - x,
    "tensor div": lambda x: T / x,
    "tensor gt": lambda x: x > T,
    "tensor fmod": lambda x: torch.fmod(x, T),
    "tensor trunc": lambda x: torch.div(x, T, rounding_mode="trunc"),
    "clamp": lambda x: x.clamp(-LOW, S),
    "threshold": lambda x: F.threshold(x, S, 3.3),
    "where": lambda x: torch.where(x > 0, x, S),
    "where tensor": lambda x: torch.where(x > 0, x, T),
    "full": lambda x: torch.full_like(x, S) == S,
    "mul by self": lambda x: x * x.flip(0),
}
#: of floats alone
OF_FLOATS: dict[str, Function] = {
    "masked_fill": lambda x: x.masked_fill(x > 0, S),
    "full of float": lambda x: torch.full((3,), S, dtype=x.dtype).double(),
    "add alpha": lambda x: torch.add(x, x.flip(0), alpha=S),
    "sub alpha": lambda x: torch.sub(x, x.flip(0), alpha=S),
    "rsub alpha": lambda x: torch.rsub(x, x.flip(0), alpha=S),
    "addcmul": lambda x: torch.addcmul(x, x.flip(0), x, value=S),
    "addcdiv": lambda x: torch.addcdiv(x, x.flip(0), x, value=S),
    "lerp near": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "lerp far": lambda x: torch.lerp(x, x.flip(0), S),
    "lerp tensor": lambda x: torch.lerp(x, x.flip(0), x.roll(5)),
    "hardtanh": lambda x: F.hardtanh(x, -LOW, S),
    "leaky_relu": lambda x: F.leaky_relu(x, LOW),
    "hardshrink": lambda x: F.hardshrink(x, S),
    "softshrink": lambda x: F.softshrink(x, S),
    "trunc": lambda x: torch.div(x, x.flip(0), rounding_mode="trunc"),
    "floor": lambda x: torch.div(x, x.flip(0), rounding_mode="floor"),
    "trunc by one": lambda x: torch.div(x, x[77:78], rounding_mode="trunc"),
    "floor by one": lambda x: torch.div(x, x[77:78], rounding_mode="floor"),
    "power -1": lambda x: x**-1,
    "power -2": lambda x: x**-2,
}
#: of 16-bit floats, whose functions are computed in float32: at most one unit of the 16-bit type from eager's
CLOSE: dict[str, Function] = {
    "power": lambda x: x**S,
    "power of number": lambda x: S**x,
    "root": lambda x: x**0.5,
    "reciprocal root": lambda x: x**-0.5,
    "elu": lambda x: F.elu(x, S),
    "celu": lambda x: F.celu(x, S),
    "softplus": lambda x: F.softplus(x, S, 3.3),
    "logit": lambda x: torch.logit(x, LOW),
    "logit of all": lambda x: torch.logit(x),
}
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of a 16-bit type; of others edges and a sample."""
    generator = torch.Generator().manual_seed(0)
    if dtype in (torch.float16, torch.bfloat16):
        x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
        return torch.where(x.isnan(), torch.full_like(x, math.nan), x)  # quiet: eager's fmod of others is open
    if dtype.is_floating_point:
        edges = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, S, -S, LOW, 1.0, 0.5, 6.0, 7.0, 2.0])
        bits = torch.randint(-(2**31), 2**31, (8179,), generator=generator).to(torch.int32).view(torch.float32)
        return torch.cat([edges, torch.where(bits.isnan(), bits.new_tensor(math.nan), bits)]).to(dtype)
    info = torch.iinfo(dtype)
    drawn = torch.randint(max(info.min, -(2**40)), min(info.max, 2**40), (507,), generator=generator)
    return torch.cat([torch.tensor([info.min, info.max, 1, 2, 3]), drawn]).to(dtype)


def table(dtype: torch.dtype) -> dict[str, Function]:
    rows = EXACT if not dtype.is_floating_point else EXACT | OF_FLOATS
    return rows | CLOSE if dtype in (torch.float16, torch.bfloat16) else rows


def unit(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    return (x.abs() * info.eps).clamp_min(info.smallest_normal * info.eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, *INTEGERS])
def test_numbers_beside_tensors(dtype: torch.dtype, tmp_path: Path) -> None:
    rows, x = table(dtype), numbers(dtype)
    path = mycc.compile(lambda x: [f(x) for f in rows.values()], (x,), out=tmp_path / "numbers.pkg", verify=False)
    wrong = []
    for (name, f), got in zip(rows.items(), mycc.load(path)(x), strict=True):
        want = f(x)
        assert got.dtype == want.dtype, name
        a, b = got.double(), want.double()
        same = (a == b) & (torch.signbit(a) == torch.signbit(b)) | (a.isnan() & b.isnan())
        if name in CLOSE:
            same |= (a - b).abs() <= unit(b, dtype)
        if not same.all():
            at = int((~same).nonzero()[0])
            wrong.append(f"{name}: {int((~same).sum())} of {len(same)}, {a[at]} for {b[at]} at {x[at % len(x)]}")
    assert not wrong, "\n".join(wrong)


def remainders(a: Any, b: Any) -> tuple[Any, ...]:
    return torch.fmod(a, b), torch.remainder(a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_remainders_of_large_ratios(dtype: torch.dtype, tmp_path: Path) -> None:
    """Exact, as C's fmod is. Eager's SIMD code gives NaN where the quotient overflows; its scalar code does not."""
    info = torch.finfo(dtype)
    large = torch.tensor([info.max, -info.max, 7.0, 1.0, 3e4, -5.5], dtype=dtype)
    small = torch.tensor([info.tiny, 3.0, -info.tiny, 0.3, 0.007, info.smallest_normal], dtype=dtype)
    a, b = (t.flatten() for t in torch.meshgrid(large, small, indexing="ij"))
    model = mycc.load(mycc.compile(remainders, (a, b), out=tmp_path / "remainders.pkg", verify=False))
    for i, got in enumerate(model(a, b)):
        want = torch.stack([remainders(p, q)[i] for p, q in zip(a, b, strict=True)])  # one by one: the scalar code
        assert torch.equal(got, want)
