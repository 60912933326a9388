"""What stores of fewer bits leave out has the same low bits, and is left where somebody else reads it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from mycc.compiler.ir.expr import Acc, Call, Const, Expr, cast, uses
from mycc.compiler.ir.narrowing import stored
from mycc.compiler.ir.ops import OPS

X = Acc("x", "f32")
BYTE = cast(Call("sub", (cast(cast(X, "u8"), "i32"), Const(128, "i32")), "i32"), "i8")


def test_a_store_of_a_byte_takes_the_low_bits() -> None:
    found = stored(BYTE, "i8", uses([BYTE]))
    assert str(found) == "sub(to_i32(x), 128i32)"


def test_what_is_read_elsewhere_stays() -> None:
    assert stored(BYTE, "i8", Counter({BYTE: 2})) is BYTE
    inner = BYTE.args[0].args[0]  # type: ignore[attr-defined]
    counts = uses([BYTE])
    counts[inner] = 2
    assert str(stored(BYTE, "i8", counts)) == f"sub({inner}, 128i32)"


def test_bits_that_the_low_ones_depend_on_stay() -> None:
    shifted = cast(Call("shift_right", (cast(cast(X, "u8"), "i32"), Const(1, "i32")), "i32"), "i8")
    assert "to_u8" in str(stored(shifted, "i8", uses([shifted])))
    wide = cast(cast(cast(X, "u8"), "i32"), "i16")
    assert "to_u8" in str(stored(wide, "i16", uses([wide])))
    assert stored(BYTE, "i32", uses([BYTE])) is BYTE


def rounded(zero: float, low: float, high: float) -> Call:
    """to_i8(minimum(maximum(round(x) + zero, low), high))"""
    value: Expr = Call("round", (Acc("x", "f32"),), "f32")
    if zero:
        value = Call("add", (value, Const(zero, "f32")), "f32")
    value = Call("maximum", (value, Const(low, "f32")), "f32")
    return Call("cast", (Call("minimum", (value, Const(high, "f32")), "f32"),), "i8")


def test_bounds_come_in_front_of_the_rounding() -> None:
    byte = rounded(-5.0, -128.0, 112.0)
    found = stored(byte, "i8", uses([byte]))
    assert str(found) == "add(nearest_i32(minimum(maximum(x, -123.0), 117.0)), -5i32)"
    byte = rounded(0.0, -128.0, 127.0)
    assert str(stored(byte, "i8", uses([byte]))) == "nearest_i32(minimum(maximum(x, -128.0), 127.0))"


@pytest.mark.parametrize(
    ("zero", "low", "high"), [(0.5, -128.0, 127.0), (0.0, -128.5, 127.0), (2.0**24, -128.0, 127.0)]
)
def test_numbers_that_are_not_whole_or_large_stay(zero: float, low: float, high: float) -> None:
    byte = rounded(zero, low, high)
    assert stored(byte, "i8", uses([byte])) == cast(byte.args[0], "i32")


def test_a_rounding_that_others_read_stays() -> None:
    byte = rounded(3.0, -128.0, 127.0)
    counts = uses([byte])
    counts[byte.args[0]] = 2
    assert stored(byte, "i8", counts) == cast(byte.args[0], "i32")


@pytest.mark.parametrize("zero", [-128, -7, 0, 1, 127])
def test_rounded_values_are_the_same(zero: int) -> None:
    """At ties, at bounds and far beyond them."""
    x = torch.cat((torch.arange(-600, 600) / 2, torch.tensor([math.inf, -math.inf, 1e30, -1e30, 0.49999997, -0.0])))
    wanted = (x.round() + zero).clamp(-128, 127).to(torch.int8)
    found = OPS["nearest_i32"].reference(x.clamp(-128 - zero, 127 - zero)) + zero
    assert torch.equal(found.to(torch.int8), wanted)
