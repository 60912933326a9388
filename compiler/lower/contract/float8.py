"""Numbers of float8, which lie in bytes: what they stand for."""

from __future__ import annotations

from ...ir.expr import Call, Expr, cast
from ...ir.index import Index
from ..core.builder import call, compare, number
from ..core.context import Context
from ..core.tensor import Tensor

#: of float8_e4m3fn: bits of its mantissa, bias of its exponent, and the byte, without its sign, of NaN
MANTISSA, BIAS, NAN = 3, 7, 0x7F


def numbers_of(ctx: Context, t: Tensor, dtype: str) -> Tensor:
    """The numbers of a tensor in `dtype`; one of bytes is of float8."""
    if t.dtype == dtype:
        return t
    if t.dtype != "u8":
        return ctx.builder.map(t.shape, dtype, t.at)

    def value(i: list[Index]) -> Expr:
        return cast(float8_number(t.at(i)), dtype)

    return ctx.builder.map(t.shape, dtype, value)


def float8_number(byte: Expr) -> Expr:
    """The float32 that the bits of a float8_e4m3fn stand for."""
    bits = cast(byte, "i32")
    magnitude, cut = call("bit_and", bits, number(NAN, "i32")), 23 - MANTISSA
    moved = call("shift_left", magnitude, number(cut, "i32"))
    normal = _bits_as_float(call("add", moved, number((127 - BIAS) << 23, "i32")))
    small = call("mul", cast(magnitude, "f32"), number(2.0 ** (1 - BIAS - MANTISSA), "f32"))
    size = call("where", compare("lt", magnitude, number(1 << MANTISSA, "i32")), small, normal)
    size = call("where", compare("eq", magnitude, number(NAN, "i32")), number(float("nan"), "f32"), size)
    negative = compare("ne", call("bit_and", bits, number(0x80, "i32")), number(0, "i32"))
    return call("where", negative, call("neg", size), size)


def _bits_as_float(bits: Expr) -> Expr:
    return Call("f32_of_bits", (bits,), "f32")
