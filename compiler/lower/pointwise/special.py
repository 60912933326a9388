"""Special functions: rows from aten's names to those of ir/special_ops.py. They compute in float64 at least."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import Expr
from ..core.builder import call, compare, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor
from .operands import rounding
from .pointwise import apply
from .table import FLOAT

UNARY = {
    "digamma": "digamma",
    "erfinv": "erfinv",
    "i0": "i0",
    "special_ndtri": "ndtri",
    "special_erfcx": "erfcx",
    "special_i0e": "i0e",
    "special_i1": "i1",
    "special_i1e": "i1e",
    "special_modified_bessel_i0": "i0",
    "special_modified_bessel_i1": "i1",
    "special_modified_bessel_k0": "k0",
    "special_modified_bessel_k1": "k1",
    "special_scaled_modified_bessel_k0": "scaled_k0",
    "special_scaled_modified_bessel_k1": "scaled_k1",
    "special_bessel_j0": "j0",
    "special_bessel_j1": "j1",
    "special_bessel_y0": "y0",
    "special_bessel_y1": "y1",
    "special_spherical_bessel_j0": "spherical_j0",
    "special_airy_ai": "airy_ai",
}
#: kinds of polynomials: (x, degree)
POLYNOMIALS = {
    **{f"special_chebyshev_polynomial_{k}": f"chebyshev_{k}" for k in "tuvw"},
    **{f"special_shifted_chebyshev_polynomial_{k}": f"shifted_chebyshev_{k}" for k in "tuvw"},
    "special_hermite_polynomial_h": "hermite_h",
    "special_hermite_polynomial_he": "hermite_he",
    "special_laguerre_polynomial_l": "laguerre_l",
    "special_legendre_polynomial_p": "legendre_p",
}
BINARY = {
    "igamma.default": "igamma",
    "igammac.default": "igammac",
    "special_zeta.default": "zeta",
    "special_zeta.other_scalar": "zeta",
    "special_zeta.self_scalar": "zeta",
    **{f"{name}.{o}": op for name, op in POLYNOMIALS.items() for o in ("default", "n_scalar", "x_scalar")},
}


def _function(op: str) -> Callable[..., Tensor]:
    def lowering(ctx: Context, *operands: Any) -> Tensor:
        return apply(ctx, list(operands), lambda *e: call(op, *e), FLOAT)

    return lowering


for _name, _op in UNARY.items():
    row(f"aten.{_name}.default")(_function(_op))
for _name, _op in BINARY.items():
    row(f"aten.{_name}")(_function(_op))


@row("aten.polygamma.default")
def polygamma(ctx: Context, order: int, x: Tensor) -> Tensor:
    return apply(ctx, [x], lambda e: call("polygamma", number(float(order), e.dtype), e), FLOAT)


@row("aten.nextafter.default")
def nextafter(ctx: Context, x: Tensor, towards: Tensor) -> Tensor:
    if ctx.result_dtype() not in ("f32", "f64"):
        raise ctx.refuse(f"neighbours of {ctx.result_dtype()} numbers are not supported")
    return apply(ctx, [x, towards], lambda a, b: call("nextafter", a, b))


@row("aten.frexp.Tensor")
def frexp(ctx: Context, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissa in [0.5, 1) and exponent."""

    def part(op: str, index: int) -> Tensor:
        return ctx.builder.map(
            x.shape, ctx.result_dtype(index), lambda i: call(op, _computed(x.at(i))), x.memory_order()
        )

    return part("frexp_mantissa", 0), part("frexp_exponent", 1)


def _computed(e: Expr) -> Expr:
    from ...ir.dtypes import DTYPES
    from ...ir.expr import cast

    return cast(e, DTYPES[e.dtype].compute)


@row("aten.angle.default")
def angle(ctx: Context, x: Tensor) -> Tensor:
    """Of real numbers: pi below zero, 0 else, NaN for NaN."""

    def meaning(e: Expr) -> Expr:
        value = where(compare("lt", e, number(0.0, e.dtype)), number(3.141592653589793, e.dtype), number(0.0, e.dtype))
        return where(compare("isnan", e), e, value)

    return apply(ctx, [x], meaning, FLOAT)


@row("aten.signbit.default")
def signbit(ctx: Context, x: Tensor) -> Tensor:
    from ...ir.dtypes import DTYPES

    compute = DTYPES[x.dtype].compute

    def meaning(e: Expr) -> Expr:
        if DTYPES[compute].kind == "f":
            e = call("copysign", number(1.0, compute), e)
        return compare("lt", e, number(0, compute)) if compute != "bool" else number(False, "bool")

    return apply(ctx, [x], meaning, dtype=compute)


@row("aten.round.decimals")
def round_decimals(ctx: Context, x: Tensor, *, decimals: int = 0) -> Tensor:
    """GPUs round the scaled value, and the scale, to the type of x."""
    of_gpu = ctx.builder.family == "cuda"
    step = rounding(ctx.result_dtype()) if of_gpu else lambda e: e

    def meaning(e: Expr) -> Expr:
        if e.dtype not in ("f32", "f64"):
            return e
        scale = step(number(10.0 ** abs(decimals), e.dtype))
        there, back = ("mul", "div") if decimals >= 0 else ("div", "mul")
        return call(back, call("round", step(call(there, e, scale))), scale)

    return apply(ctx, [x], meaning)


@row("aten.gcd.default")
def gcd(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    return apply(ctx, [a, b], lambda x, y: _gcd(x, y, ctx.result_dtype()))


#: bits of an i32 that a narrow signed type leaves free
_ROOM = {"i8": 24, "i16": 16}


def _gcd(x: Expr, y: Expr, dtype: str) -> Expr:
    """Narrow numbers in the high bits of an i32, so that the size of the least one wraps as in torch."""
    if dtype not in _ROOM:
        return call("gcd", x, y)
    room = number(_ROOM[dtype], x.dtype)
    high = (call("shift_left", e, room) for e in (x, y))
    return call("shift_right", call("gcd", *high), room)


@row("aten.lcm.default")
def lcm(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """|a / gcd(a, b) * b|, and 0 when one of them is."""

    def meaning(x: Expr, y: Expr) -> Expr:
        divisor = _gcd(x, y, ctx.result_dtype())
        some = where(compare("eq", divisor, number(0, x.dtype)), number(1, x.dtype), divisor)
        return call("abs", call("mul", call("trunc_div", x, some), y))

    return apply(ctx, [a, b], meaning)
