"""Conversions that a store of fewer bits does by itself."""

from __future__ import annotations

from collections.abc import Mapping

from .dtypes import DTYPES
from .expr import Call, Const, Expr, cast

HALVES = ("f16", "bf16")
_WRAPPING = ("add", "sub", "mul")


def stored(e: Expr, dtype: str, uses: Mapping[Expr, int]) -> Expr:
    """What a store to `dtype` may write instead of e, whose conversions nobody else reads.

    to_f16(x)                       ->   x                      the store rounds
    to_i8(to_i32(to_u8(x)) - 128)   ->   to_i32(x) - 128        the store takes the low bits
    to_i8(minimum(maximum(round(x) + z, a), b))   ->   nearest_i32(minimum(maximum(x, a - z), b - z)) + z
    """
    if dtype in HALVES and isinstance(e, Call) and e.op == "cast" and e.dtype == dtype:
        (wide,) = e.args
        return wide if uses[e] <= 1 and DTYPES[wide.dtype].compute == "f32" else e
    if DTYPES[dtype].kind == "i" and DTYPES[dtype].size < DTYPES["i32"].size and e.dtype == dtype:
        return _low_bits(e, DTYPES[dtype].size, uses)
    return e


def _low_bits(e: Expr, size: int, uses: Mapping[Expr, int]) -> Expr:
    """An expression of 32 bits, of which the lowest `size` bytes are those of e."""
    if not isinstance(e, Call) or uses[e] > 1 or not _holds(e, size):
        return e
    if e.op == "cast":
        (source,) = e.args
        if _holds(source, size):
            return _low_bits(source, size, uses)
        return (_rounded(source, uses) or cast(source, "i32")) if source.dtype == "f32" else e
    if e.op in _WRAPPING:
        return Call(e.op, tuple(_low_bits(arg, size, uses) for arg in e.args), e.dtype)
    return e


#: integers up to here are numbers of float32, and so are their sums
_LARGEST = 1 << 23


def _rounded(e: Expr, uses: Mapping[Expr, int]) -> Expr | None:
    """minimum(maximum(round(x) + z, a), b) as an integer of 32 bits, for whole numbers z, a and b; None for all else.

    Rounding keeps the order of numbers and leaves whole ones as they are, so that bounds may come first; what is
    rounded then is small, and one instruction makes it an integer. NaN, which no integer stands for, becomes any.
    """
    bounds = []
    for op in ("minimum", "maximum"):
        if not (isinstance(e, Call) and e.op == op and uses[e] <= 1):
            return None
        e, bound = e.args
        bounds.append(_whole(bound))
    zero: int | None = 0
    if isinstance(e, Call) and e.op == "add" and uses[e] <= 1:
        e, added = e.args
        zero = _whole(added)
    if not (isinstance(e, Call) and e.op == "round" and uses[e] <= 1) or zero is None:
        return None
    high, low = bounds
    if high is None or low is None or low > high:
        return None
    x = Call("maximum", (e.args[0], Const(float(low - zero), "f32")), "f32")
    x = Call("minimum", (x, Const(float(high - zero), "f32")), "f32")
    nearest = Call("nearest_i32", (x,), "i32")
    return Call("add", (nearest, Const(zero, "i32")), "i32") if zero else nearest


def _whole(e: Expr) -> int | None:
    """The value of a constant that is a whole number, and not large; None for all else."""
    if not isinstance(e, Const) or not abs(e.value) < _LARGEST or int(e.value) != e.value:
        return None
    return int(e.value)


def _holds(e: Expr, size: int) -> bool:
    """Whether e is an integer of `size` bytes at least, computed in 32 bits."""
    dtype = DTYPES[e.dtype]
    return dtype.kind == "i" and dtype.size >= size and dtype.compute == "i32"
