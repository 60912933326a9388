"""Rules: exponentials, logarithms, powers, trigonometry, with the branch cuts and infinities of C99's annex G.

Inverse functions after Kahan, "Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .arithmetic import absolute, difference, product, quotient
from .parts import Call, Complex, Refused, parts, rule, tensors

_LN2, _LN10 = math.log(2.0), math.log(10.0)


def scaled(a: Complex, factor: float) -> Complex:
    return Complex(a.re * factor, a.im * factor)


def times_i(a: Complex) -> Complex:
    """i a"""
    return Complex(-a.im, a.re)


def times_minus_i(a: Complex) -> Complex:
    """-i a"""
    return Complex(a.im, -a.re)


def where(condition: Tensor, a: Any, b: Any) -> Tensor:
    return torch.where(condition, a, b)


def exp_of(a: Complex) -> Complex:
    """An infinite real part decides: 0 for any angle below, an infinity and NaN above where the angle is none."""
    size = torch.exp(a.re)
    no_angle = ~torch.isfinite(a.im)
    vanishes, overflows = no_angle & (a.re == -math.inf), no_angle & (a.re == math.inf)
    re = where(a.im == 0, size, size * torch.cos(a.im))
    im = where(a.im == 0, a.im, size * torch.sin(a.im))
    re = where(vanishes, 0.0, where(overflows, math.inf, re))
    return Complex(re, where(vanishes, 0.0, im))


def log_of_size(a: Complex) -> Tensor:
    """log |a|, as log1p of |a|^2 - 1 near the unit circle."""
    x, y = torch.maximum(a.re.abs(), a.im.abs()), torch.minimum(a.re.abs(), a.im.abs())
    size = absolute(a)
    near = 0.5 * torch.log1p((x - 1) * (x + 1) + y * y)
    return where((size > 0.5) & (size < 2), near, torch.log(size))


def log_of(a: Complex) -> Complex:
    return Complex(log_of_size(a), torch.atan2(a.im, a.re))


def sqrt_of(a: Complex) -> Complex:
    """The half plane on the right; quarters of the parts first, so that nothing overflows."""
    x, y = 0.25 * a.re.abs(), 0.25 * a.im.abs()
    half = torch.sqrt(0.5 * x + 0.5 * torch.hypot(x, y))  # of the larger part
    large = 2 * half
    small = where(half == 0, 0.0, y / half)
    small = where(torch.isinf(a.re) & torch.isfinite(a.im), 0.0, small)
    right = (a.re >= 0) | torch.isnan(a.re)
    re, im = where(right, large, small), where(right, small, large)
    open_ended = torch.isinf(a.im)
    return Complex(where(open_ended, math.inf, re), torch.copysign(where(open_ended, math.inf, im), a.im))


def sinh_of(a: Complex) -> Complex:
    return Complex(
        where(a.re == 0, a.re, torch.sinh(a.re) * torch.cos(a.im)),
        where(a.im == 0, a.im, torch.cosh(a.re) * torch.sin(a.im)),
    )


def cosh_of(a: Complex) -> Complex:
    return Complex(
        where(a.im == 0, torch.cosh(a.re), torch.cosh(a.re) * torch.cos(a.im)),
        where((a.re == 0) | (a.im == 0), a.re * a.im, torch.sinh(a.re) * torch.sin(a.im)),
    )


def tanh_of(a: Complex) -> Complex:
    """Kahan's form; far from the imaginary axis the limit."""
    far = a.re.abs() > (20.0 if a.re.dtype == torch.float64 else 10.0)
    x = where(far, 0.0, a.re)
    tangent, s = torch.tan(a.im), torch.sinh(x)
    steep = torch.isinf(tangent)
    beta, rho = 1 + tangent * tangent, torch.sqrt(1 + s * s)
    below = 1 + beta * s * s
    re, im = where(steep, rho / s, beta * rho * s / below), tangent / below
    limit = 4 * torch.sin(a.im) * torch.cos(a.im) * torch.exp(-2 * a.re.abs())
    return Complex(
        where(far, torch.sign(a.re), re),
        where(a.im == 0, a.im, where(far, where(torch.isfinite(a.im), limit, 0.0), im)),
    )


def asin_of(a: Complex) -> Complex:
    down, up = sqrt_of(Complex(1 - a.re, -a.im)), sqrt_of(Complex(1 + a.re, a.im))
    return Complex(torch.atan2(a.re, down.re * up.re - down.im * up.im), torch.asinh(down.re * up.im - down.im * up.re))


def acos_of(a: Complex) -> Complex:
    down, up = sqrt_of(Complex(1 - a.re, -a.im)), sqrt_of(Complex(1 + a.re, a.im))
    return Complex(2 * torch.atan2(down.re, up.re), torch.asinh(up.re * down.im - up.im * down.re))


def acosh_of(a: Complex) -> Complex:
    low, high = sqrt_of(Complex(a.re - 1, a.im)), sqrt_of(Complex(a.re + 1, a.im))
    return Complex(torch.asinh(low.re * high.re + low.im * high.im), 2 * torch.atan2(low.im, high.re))


def atanh_of(a: Complex) -> Complex:
    x, y = a.re.abs(), a.im
    re = 0.25 * torch.log1p(4 * x / ((1 - x) * (1 - x) + y * y))
    re = where(torch.isinf(a.re) | torch.isinf(a.im), 0.0, re)
    wide = torch.isinf(a.re) | torch.isinf(a.im) | (x > 1e15) | (y.abs() > 1e15)
    turn = torch.atan2(2 * y, (1 - x) * (1 + x) - y * y)
    im = 0.5 * where(wide, torch.copysign(torch.full_like(y, math.pi), y), turn)
    return Complex(torch.copysign(re, a.re), im)


def expm1_of(a: Complex) -> Complex:
    half = torch.sin(0.5 * a.im)
    return Complex(torch.expm1(a.re) * torch.cos(a.im) - 2 * half * half, torch.exp(a.re) * torch.sin(a.im))


def log1p_of(a: Complex) -> Complex:
    """log1p(x (x + 2) + y^2) / 2 where that is exact enough, log |1 + a| else."""
    shifted = Complex(1 + a.re, a.im)
    small = absolute(a) < 0.5
    near = 0.5 * torch.log1p(a.re * (a.re + 2) + a.im * a.im)
    return Complex(where(small, near, log_of_size(shifted)), torch.atan2(a.im, shifted.re))


def sigmoid_of(a: Complex) -> Complex:
    power = exp_of(Complex(-a.re, -a.im))
    return quotient(tensors(1.0, a.re.dtype), Complex(1 + power.re, power.im))


def log_sum_exp(a: Complex, b: Complex) -> Complex:
    """log(exp a + exp b), from the one with the larger real part."""
    first = a.re >= b.re
    high = Complex(where(first, a.re, b.re), where(first, a.im, b.im))
    low = Complex(where(first, b.re, a.re), where(first, b.im, a.im))
    rest = log1p_of(exp_of(difference(low, high)))
    same = torch.isinf(high.re) & (low.re == high.re)
    return Complex(where(same, high.re, high.re + rest.re), where(same, high.im, high.im + rest.im))


FUNCTIONS: dict[str, Callable[[Complex], Complex]] = {
    "exp": exp_of,
    "exp2": lambda a: exp_of(scaled(a, _LN2)),
    "expm1": expm1_of,
    "log": log_of,
    "log2": lambda a: scaled(log_of(a), 1 / _LN2),
    "log10": lambda a: scaled(log_of(a), 1 / _LN10),
    "log1p": log1p_of,
    "sqrt": sqrt_of,
    "rsqrt": lambda a: quotient(tensors(1.0, a.re.dtype), sqrt_of(a)),
    "sinh": sinh_of,
    "cosh": cosh_of,
    "tanh": tanh_of,
    "sin": lambda a: times_minus_i(sinh_of(times_i(a))),
    "cos": lambda a: cosh_of(times_i(a)),
    "tan": lambda a: times_minus_i(tanh_of(times_i(a))),
    "asin": asin_of,
    "acos": acos_of,
    "atan": lambda a: times_minus_i(atanh_of(times_i(a))),
    "asinh": lambda a: times_minus_i(asin_of(times_i(a))),
    "acosh": acosh_of,
    "atanh": atanh_of,
    "sigmoid": sigmoid_of,
    "silu": lambda a: product(a, sigmoid_of(a)),
}


def _function(function: Callable[[Complex], Complex]) -> Callable[..., Complex]:
    return lambda call, a: function(parts(a, call.real))


for _name, _of in FUNCTIONS.items():
    rule(_name)(_function(_of))


@rule("pow")
def pow_(call: Call, base: Any, exponent: Any) -> Complex:
    """Small whole powers by products, others exp(b log a), as C's cpow."""
    if not isinstance(exponent, (Complex, Tensor)):
        simple = _simple_power(parts(base, call.real), complex(exponent))
        if simple is not None:
            return simple
    a, b = tensors(base, call.real), tensors(exponent, call.real)
    result = exp_of(product(log_of(a), b))
    none = (b.re == 0) & (b.im == 0)
    nothing = (a.re == 0) & (a.im == 0) & ~none
    gone = nothing & (b.re > 0)
    re, im = where(none, 1.0, result.re), where(none, 0.0, result.im)
    return Complex(where(gone, 0.0, re), where(gone, 0.0, im))


def _simple_power(a: Complex, exponent: complex) -> Complex | None:
    if exponent.imag or exponent.real not in (0.5, -0.5, 1, 2, 3, -1, -2):
        return None
    one = tensors(1.0, a.re.dtype)
    powers: dict[float, Callable[[], Complex]] = {
        0.5: lambda: sqrt_of(a),
        -0.5: lambda: quotient(one, sqrt_of(a)),
        1: lambda: a,
        2: lambda: product(a, a),
        3: lambda: product(product(a, a), a),
        -1: lambda: quotient(one, a),
        -2: lambda: quotient(one, product(a, a)),
    }
    return powers[exponent.real]()


@rule("logaddexp")
def logaddexp(call: Call, a: Any, b: Any) -> Complex:
    return log_sum_exp(tensors(a, call.real), tensors(b, call.real))


@rule("logsumexp")
def logsumexp(call: Call, a: Complex, dims: Any, keepdim: bool = False) -> Complex:
    """From the largest real part, where that is finite."""
    axes = list(dims) or list(range(a.re.dim()))
    empty = any(a.re.shape[d] == 0 for d in axes)  # of nothing there is no largest
    top = a.re.sum(axes, True) if empty else a.re.amax(axes, True)
    top = where(torch.isfinite(top), top, 0.0)
    power = exp_of(Complex(a.re - top, a.im))
    result = log_of(Complex(power.re.sum(axes, keepdim), power.im.sum(axes, keepdim)))
    shift = top if keepdim else top.sum(axes)  # one element along each of them
    return Complex(result.re + shift, result.im)


@rule("logcumsumexp")
def logcumsumexp(call: Call, a: Complex, dim: int) -> Complex:
    raise Refused("torch leaves the turns of its angles to the order of the additions")
