"""What stores of fewer bits leave out has the same low bits, and is left where somebody else reads it."""

from __future__ import annotations

from collections import Counter

from mycc.compiler.ir.expr import Acc, Call, Const, cast, uses
from mycc.compiler.ir.narrowing import stored

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
