"""Rules: arithmetic and comparisons. Real operands and numbers take part as torch has it: with an imaginary zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .parts import Call, Complex, cast, common_dtype, parts, rule, tensors


def product(a: Complex, b: Complex) -> Complex:
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def total(a: Complex, b: Complex) -> Complex:
    return Complex(a.re + b.re, a.im + b.im)


def difference(a: Complex, b: Complex) -> Complex:
    return Complex(a.re - b.re, a.im - b.im)


def conjugate(a: Complex) -> Complex:
    return Complex(a.re, -a.im)


def quotient(a: Complex, b: Complex) -> Complex:
    """Smith's algorithm (CACM 5, 1962): the parts of b by the larger of them, so that nothing overflows on the way."""
    real_larger = b.re.abs() >= b.im.abs()
    large, small = torch.where(real_larger, b.re, b.im), torch.where(real_larger, b.im, b.re)
    ratio = torch.where(large == 0, torch.zeros_like(small), small / large)
    scale = 1 / (large + small * ratio)
    x, y = torch.where(real_larger, a.re, a.im), torch.where(real_larger, a.im, a.re)
    re = (x + y * ratio) * scale
    im = (y - x * ratio) * scale
    return Complex(re, torch.where(real_larger, im, -im))


def absolute(a: Complex) -> Tensor:
    return torch.hypot(a.re, a.im)


def truth(a: Any) -> Tensor:
    """Whether a value, complex or not, is not zero."""
    return (a.re != 0) | (a.im != 0) if isinstance(a, Complex) else a != 0


def _two(call: Call, a: Any, b: Any) -> tuple[Complex, Complex]:
    return parts(a, call.real), parts(b, call.real)


@rule("add")
def add(call: Call, a: Any, b: Any, *, alpha: Any = 1) -> Complex:
    x, y = _two(call, a, b)
    return total(x, y if alpha == 1 else product(y, parts(alpha, call.real)))


@rule("sub")
def sub(call: Call, a: Any, b: Any, *, alpha: Any = 1) -> Complex:
    x, y = _two(call, a, b)
    return difference(x, y if alpha == 1 else product(y, parts(alpha, call.real)))


@rule("rsub")
def rsub(call: Call, a: Any, b: Any, alpha: Any = 1) -> Complex:
    return sub(call, b, a, alpha=alpha)


@rule("mul")
def mul(call: Call, a: Any, b: Any) -> Complex:
    return product(*_two(call, a, b))


@rule("div true_divide")
def div(call: Call, a: Any, b: Any) -> Complex:
    return quotient(tensors(a, call.real), tensors(b, call.real))


@rule("reciprocal")
def reciprocal(call: Call, a: Complex) -> Complex:
    return quotient(tensors(1.0, call.real), a)


@rule("neg _neg_view")
def neg(call: Call, a: Complex) -> Complex:
    return Complex(-a.re, -a.im)


@rule("square")
def square(call: Call, a: Complex) -> Complex:
    return product(a, a)


@rule("addcmul")
def addcmul(call: Call, c: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    return add(call, c, product(*_two(call, a, b)), alpha=value)


@rule("addcdiv")
def addcdiv(call: Call, c: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    return add(call, c, div(call, mul(call, a, value), b))


@rule("lerp")
def lerp(call: Call, start: Any, end: Any, weight: Any) -> Complex:
    """start + weight * (end - start); from the other end where |weight| is half or more, as torch does it."""
    a, b = parts(start, call.real), parts(end, call.real)
    w = tensors(weight, call.real)
    gap = difference(b, a)
    near, far = total(a, product(w, gap)), difference(b, product(gap, Complex(1 - w.re, -w.im)))
    small = absolute(w) < 0.5
    return Complex(torch.where(small, near.re, far.re), torch.where(small, near.im, far.im))


@rule("abs")
def abs_(call: Call, a: Complex) -> Tensor:
    return absolute(a)


@rule("angle")
def angle(call: Call, a: Complex) -> Tensor:
    return torch.atan2(a.im, a.re)


@rule("sign sgn")
def sign(call: Call, a: Complex) -> Complex:
    size = absolute(a)
    zero = size == 0
    return Complex(torch.where(zero, 0.0, a.re / size), torch.where(zero, 0.0, a.im / size))


@rule("_conj _conj_physical conj conj_physical")
def conj(call: Call, a: Complex) -> Complex:
    return conjugate(a)


@rule("real")
def real(call: Call, a: Complex) -> Tensor:
    return a.re


@rule("imag")
def imag(call: Call, a: Complex) -> Tensor:
    return a.im


@rule("complex")
def complex_(call: Call, re: Tensor, im: Tensor) -> Complex:
    re, im = torch.broadcast_tensors(cast(re, call.real), cast(im, call.real))
    return Complex(re, im)


@rule("polar")
def polar(call: Call, size: Tensor, angle: Tensor) -> Complex:
    return Complex(size * torch.cos(angle), size * torch.sin(angle))


@rule("view_as_real view_as_real_copy")
def view_as_real(call: Call, a: Complex) -> Tensor:
    return torch.stack([a.re, a.im], -1)


@rule("view_as_complex view_as_complex_copy")
def view_as_complex(call: Call, x: Tensor) -> Complex:
    return Complex(x.select(-1, 0), x.select(-1, 1))


# comparisons and logic -------------------------------------------------------------------------------------------
@rule("eq")
def eq(call: Call, a: Any, b: Any) -> Tensor:
    dtype = common_dtype(a, b)
    x, y = parts(a, dtype), parts(b, dtype)
    return (x.re == y.re) & (x.im == y.im)


@rule("ne")
def ne(call: Call, a: Any, b: Any) -> Tensor:
    return ~eq(call, a, b)


@rule("isnan")
def isnan(call: Call, a: Complex) -> Tensor:
    return torch.isnan(a.re) | torch.isnan(a.im)


@rule("isinf")
def isinf(call: Call, a: Complex) -> Tensor:
    return torch.isinf(a.re) | torch.isinf(a.im)


@rule("isfinite")
def isfinite(call: Call, a: Complex) -> Tensor:
    return torch.isfinite(a.re) & torch.isfinite(a.im)


@rule("isreal")
def isreal(call: Call, a: Complex) -> Tensor:
    return a.im == 0


@rule("logical_not logical_and logical_or logical_xor")
def logic(call: Call, *operands: Any) -> Tensor:
    return call.target(*(truth(a) for a in operands))


@rule("any all")
def any_all(call: Call, a: Complex, *args: Any, **kwargs: Any) -> Tensor:
    return call.target(truth(a), *args, **kwargs)


@rule("_to_copy to")
def to(call: Call, a: Any, *_: Any, **__: Any) -> Any:
    """Between complex dtypes, to and from real ones; a real dtype takes the real part, bool what is not zero."""
    if call.val.dtype.is_complex:
        return parts(a, call.real)
    return truth(a) if call.val.dtype == torch.bool else cast(a.re, call.val.dtype)
