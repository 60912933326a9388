"""Rules: matrix products, convolutions, and reductions that are not the same in either part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .arithmetic import absolute, product, total
from .parts import Call, Complex, parts, rule

aten = torch.ops.aten


def bilinear(call: Call, f: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Complex:
    """Four real products, two where one side is real."""
    real = call.real
    if not isinstance(b, Complex):
        x, y = parts(a, real), b.to(real)
        return Complex(f(x.re, y), f(x.im, y))
    if not isinstance(a, Complex):
        x, y = a.to(real), parts(b, real)
        return Complex(f(x, y.re), f(x, y.im))
    return Complex(f(a.re, b.re) - f(a.im, b.im), f(a.re, b.im) + f(a.im, b.re))


@rule("mm bmm matmul mv")
def matmul(call: Call, a: Any, b: Any) -> Complex:
    return bilinear(call, call.target, a, b)


@rule("dot")
def dot(call: Call, a: Complex, b: Complex) -> Complex:
    values = product(parts(a, call.real), parts(b, call.real))
    return Complex(values.re.sum(), values.im.sum())


@rule("vdot")
def vdot(call: Call, a: Complex, b: Complex) -> Complex:
    return dot(call, Complex(a.re, -a.im), b)


def _weighted(call: Call, c: Any, made: Complex, beta: Any, alpha: Any) -> Complex:
    """beta c + alpha made; with beta 0, c is not read (NaN in it is no matter)."""
    if alpha != 1:
        made = product(made, parts(alpha, call.real))
    if beta == 0:
        return made
    own = parts(c, call.real)
    return total(own if beta == 1 else product(own, parts(beta, call.real)), made)


@rule("addmm")
def addmm(call: Call, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    return _weighted(call, c, bilinear(call, torch.mm, a, b), beta, alpha)


@rule("addmv")
def addmv(call: Call, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    return _weighted(call, c, bilinear(call, torch.mv, a, b), beta, alpha)


@rule("baddbmm")
def baddbmm(call: Call, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    return _weighted(call, c, bilinear(call, torch.bmm, a, b), beta, alpha)


@rule("addbmm")
def addbmm(call: Call, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    made = bilinear(call, torch.bmm, a, b)
    return _weighted(call, c, Complex(made.re.sum(0), made.im.sum(0)), beta, alpha)


@rule("addr")
def addr(call: Call, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    x, y = parts(a, call.real), parts(b, call.real)
    made = product(Complex(x.re.unsqueeze(1), x.im.unsqueeze(1)), y)
    return _weighted(call, c, made, beta, alpha)


@rule("linear")
def linear(call: Call, x: Any, weight: Any, bias: Any = None) -> Complex:
    made = bilinear(call, lambda a, b: torch.nn.functional.linear(a, b), x, weight)
    return made if bias is None else total(made, parts(bias, call.real))


@rule("conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d")
def convolution(call: Call, x: Any, weight: Any, bias: Any = None, *args: Any) -> Complex:
    made = bilinear(call, lambda a, b: call.target(a, b, None, *args), x, weight)
    if bias is None:
        return made
    column = [-1] + [1] * (parts(weight, call.real).re.dim() - 2)
    own = parts(bias, call.real)
    return total(made, Complex(own.re.reshape(column), own.im.reshape(column)))


# reductions ------------------------------------------------------------------------------------------------------
@rule("var std")
def spread(call: Call, a: Complex, *args: Any, **kwargs: Any) -> Tensor:
    """The variance of a complex variable is the sum of those of its parts."""
    form = getattr(aten.var, call.target._overloadname)
    variance = form(a.re, *args, **kwargs) + form(a.im, *args, **kwargs)
    return variance.sqrt() if call.target._opname == "std" else variance


@rule("var_mean std_mean")
def spread_and_mean(call: Call, a: Complex, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    form = getattr(aten.var_mean, call.target._overloadname)
    (v_re, m_re), (v_im, m_im) = form(a.re, *args, **kwargs), form(a.im, *args, **kwargs)
    variance = v_re + v_im
    return (variance.sqrt() if call.target._opname == "std_mean" else variance), Complex(m_re, m_im)


@rule("linalg_vector_norm norm")
def vector_norm(call: Call, a: Complex, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    if dtype is not None:
        kwargs["dtype"] = dtype.to_real()
    args = tuple(p.to_real() if isinstance(p, torch.dtype) else p for p in args)
    return call.target(absolute(a), *args, **kwargs)


@rule("cumprod")
def cumprod(call: Call, a: Any, dim: int, *, dtype: Any = None) -> Complex:
    x = parts(a, call.real)
    return Complex(*torch.ops.mycc.complex_cumprod(x.re, x.im, dim))


@rule("prod")
def prod(call: Call, a: Any, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Complex:
    x = parts(a, call.real)
    if dim is None:
        x, dim = Complex(x.re.reshape([-1]), x.im.reshape([-1])), 0
    if x.re.dim() == 0:
        return x
    if isinstance(x.re.shape[dim], int) and x.re.shape[dim] == 0:
        shape = [n for i, n in enumerate(x.re.shape) if keepdim or i != dim % x.re.dim()]
        shape = [1 if n == 0 and keepdim else n for n in shape]
        return Complex(torch.ones(shape, dtype=call.real), torch.zeros(shape, dtype=call.real))
    re, im = torch.ops.mycc.complex_cumprod(x.re, x.im, dim)
    last = (re.narrow(dim, re.shape[dim] - 1, 1), im.narrow(dim, re.shape[dim] - 1, 1))
    return Complex(*(last if keepdim else (p.squeeze(dim) for p in last)))
