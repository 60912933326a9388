"""Conversions that a store of fewer bits does by itself."""

from __future__ import annotations

from collections.abc import Mapping

from .dtypes import DTYPES
from .expr import Call, Expr, cast

HALVES = ("f16", "bf16")
_WRAPPING = ("add", "sub", "mul")


def stored(e: Expr, dtype: str, uses: Mapping[Expr, int]) -> Expr:
    """What a store to `dtype` may write instead of e, whose conversions nobody else reads.

    to_f16(x)                       ->   x                      the store rounds
    to_i8(to_i32(to_u8(x)) - 128)   ->   to_i32(x) - 128        the store takes the low bits
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
        return cast(source, "i32") if source.dtype == "f32" else e
    if e.op in _WRAPPING:
        return Call(e.op, tuple(_low_bits(arg, size, uses) for arg in e.args), e.dtype)
    return e


def _holds(e: Expr, size: int) -> bool:
    """Whether e is an integer of `size` bytes at least, computed in 32 bits."""
    dtype = DTYPES[e.dtype]
    return dtype.kind == "i" and dtype.size >= size and dtype.compute == "i32"
