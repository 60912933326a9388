"""Special functions where they overflow, end or have poles, and integers that wrap: as eager has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.lower.pointwise.special import POLYNOMIALS

Outputs = tuple[torch.Tensor, ...]

X = (0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 7.0, -7.0, 0.3, -0.7, 0.9999, 255.0, -(2.0**31), 1e9)
DEGREES = (-1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 20.0, 100.0, 127.0, 129.0, 255.0, 513.0, 1e3, 2.0**31, 9.3e18)
RECURRENT = ("special_laguerre_polynomial_l", "special_legendre_polynomial_p")  # eager makes every step: few degrees


def pairs(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    return [t.flatten() for t in torch.meshgrid(a, b, indexing="ij")]


def package(function: Callable[..., Outputs], inputs: list[torch.Tensor], path: Path) -> mycc.Model:
    return mycc.load(mycc.compile(function, tuple(inputs), out=path / "edges.pkg", verify=False))


def same(got: torch.Tensor, want: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """NaN and infinities where eager has them; numbers close to eager's, or to those of float64."""
    near = torch.isclose(got, want, rtol=1e-4, atol=1e-4) | torch.isclose(got, wide.to(want.dtype), 1e-4, 1e-4)
    return torch.where(want.isfinite(), near, torch.isclose(got, want, equal_nan=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_polynomials_overflow_as_in_torch(dtype: torch.dtype, tmp_path: Path) -> None:
    """A term that overflows is infinite, the difference of two of them NaN; closed forms end at 1 and -1."""
    x, n = pairs(torch.tensor(X, dtype=dtype), torch.tensor(DEGREES, dtype=dtype))

    def polynomials(x: torch.Tensor, n: torch.Tensor) -> Outputs:
        return tuple(getattr(torch.ops.aten, name).default(x, n) for name in POLYNOMIALS)

    for name, got in zip(POLYNOMIALS, package(polynomials, [x, n], tmp_path)(x, n), strict=True):
        few = n < 1e6 if name in RECURRENT else n == n
        function = getattr(torch.ops.aten, name).default
        fits = same(got[few], function(x[few], n[few]), function(x[few].double(), n[few].double()))
        assert bool(fits.all()), (name, x[few][~fits], n[few][~fits])


def test_trigamma_at_its_poles(tmp_path: Path) -> None:
    """The sine of a rounded multiple of pi: other numbers in float32 than in float64, and eager's are these."""
    x = torch.tensor([0, -1, -2, -7, 1, 5, -(2**31), 2**31 - 1], dtype=torch.int32)
    inputs = [x, x.float(), x.double()]

    def functions(*inputs: torch.Tensor) -> Outputs:
        return tuple(torch.polygamma(1, v) for v in inputs)

    for got, want in zip(package(functions, inputs, tmp_path)(*inputs), functions(*inputs), strict=True):
        torch.testing.assert_close(got, want)


INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def divisors(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    return torch.gcd(a, b), torch.lcm(a, b), torch.div(a, b | 1, rounding_mode="trunc")


def test_divisions_of_the_least_integer_wrap(tmp_path: Path) -> None:
    """Eager ends the process where it divides the least int32 or int64 by -1; the wrapped quotient is that number."""
    inputs: list[torch.Tensor] = []
    for dtype in INTEGERS:
        least = torch.iinfo(dtype).min
        row = torch.tensor([least, least + 1, -1, 0, 1, 2, 6, -6, 7, -least - 1, 12, least // 3], dtype=dtype)
        inputs += pairs(row, row)

    def functions(*inputs: torch.Tensor) -> Outputs:
        return tuple(r for a, b in zip(inputs[::2], inputs[1::2], strict=True) for r in divisors(a, b))

    found = package(functions, inputs, tmp_path)(*inputs)
    for i, (a, b) in enumerate(zip(inputs[::2], inputs[1::2], strict=True)):
        gcd, lcm, quotient = found[3 * i : 3 * i + 3]
        least = a == torch.iinfo(a.dtype).min
        traps = least & ((torch.gcd(a, b) == -1) | (b | 1 == -1))
        assert torch.equal(gcd, torch.gcd(a, b))
        assert torch.equal(lcm[~traps], torch.lcm(a[~traps], b[~traps]))
        assert torch.equal(quotient[~traps], divisors(a[~traps], b[~traps])[2])
        assert torch.equal(quotient[least & (b | 1 == -1)].unique(), a[least][:1])


def test_the_median_of_nothing(tmp_path: Path) -> None:
    """NaN; of integers what torch makes of NaN."""
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.uint8)

    def medians(*inputs: torch.Tensor) -> Outputs:
        return tuple(m for x in inputs for m in (x.median(), x.nanmedian()))

    inputs = [torch.zeros(0, 3, dtype=dtype) for dtype in dtypes]
    for got, want in zip(package(medians, inputs, tmp_path)(*inputs), medians(*inputs), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
