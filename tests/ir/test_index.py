"""Index arithmetic: each simplification by itself, and by property: nothing changes the value."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mycc.compiler.ir import index as ix
from mycc.compiler.ir.index import (
    ONE,
    ZERO,
    Atom,
    Binary,
    Index,
    Size,
    Var,
    as_index,
    exact_div,
    floor_div,
    maximum,
    minimum,
    of,
    product,
    remainder,
)
from mycc.compiler.ir.proofs import nonnegative_by_cases

BATCH, SEQ = Size("batch", 1, 64), Size("seq", 2, None)
b, s = of(BATCH), of(SEQ)


def loop(name: str, extent: int | Index) -> Index:
    return of(Var(name, as_index(extent)))


def value(e: Index, sizes: dict[str, int], loops: dict[str, int]) -> int:
    """The number for given sizes and loop values, without any simplification."""
    total = 0
    for monomial, c in e.terms.items():
        for atom in monomial:
            c *= _atom(atom, sizes, loops)
        total += c
    return total


def _atom(atom: Atom, sizes: dict[str, int], loops: dict[str, int]) -> int:
    match atom:
        case Size():
            return sizes[atom.name]
        case Var():
            return loops[atom.name]
        case Binary():
            x, y = value(atom.a, sizes, loops), value(atom.b, sizes, loops)
            return {"//": lambda: x // y, "%": lambda: x % y, "min": lambda: min(x, y), "max": lambda: max(x, y)}[
                atom.op
            ]()
    raise TypeError(type(atom).__name__)


# rules ---------------------------------------------------------------------------------------------------------------
m, n, c = loop("m", s), loop("n", 768), loop("c", 64)
RULES = {
    "terms are gathered": (n * 2 + n - n * 3, "0"),
    "products are expanded": ((b + 1) * (s - 1), "-1 - batch + batch*seq + seq"),
    "division by one": (m // ONE, "m"),
    "numbers are divided": (as_index(-7) // as_index(2), "-4"),
    "numbers have a remainder": (as_index(-7) % as_index(2), "1"),
    "a small rest drops out": ((m * 768 + n) // as_index(768), "m"),
    "a multiple has no remainder": ((m * 768 + n) % as_index(768), "n"),
    "a symbolic stride divides": ((loop("i", b) * s + m) // s, "i"),
    "its remainder is the fast loop": ((loop("i", b) * s + m) % s, "m"),
    "less than the divisor is nought": (n // as_index(768), "0"),
    "a slice of a row": ((m * 768 + c + 64) // as_index(64), "1 + m*12"),
    "quotients of quotients": ((m // as_index(3)) // as_index(5), "(m)//(15)"),
    "a number and a small rest": ((loop("o", 5) * 64 + loop("p", 32) + 416) // as_index(384), "1"),
    "a common factor is taken out": ((m * 4 + loop("k", 4)) // as_index(12), "(m)//(3)"),
    "a common factor stays in remainders": ((m * 4 + loop("k", 4)) % as_index(12), "k + (m)%(3)*4"),
    "quotient and remainder make the whole": ((m // s) * s + m % s, "m"),
    "also with factors": ((m // as_index(7)) * 7 * s + (m % as_index(7)) * s, "m*seq"),
    "a rest below nought goes to the quotient": ((m * 8 - 1) // as_index(8), "-1 + m"),
    "min of ordered": (minimum(n, 768), "n"),
    "max of ordered": (maximum(n, ZERO), "n"),
    "min of unordered stays": (minimum(m, n), "min(m, n)"),
    "products of nothing": (product([]), "1"),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    found, text = RULES[rule]
    assert str(found) == text or _same_terms(found, text), f"{found} instead of {text}"


def _same_terms(e: Index, text: str) -> bool:
    """The same sum, whatever the order of its terms and factors."""

    def terms(t: str) -> list[list[str]]:
        parts = t.replace("- ", "+ -").split("+")
        return sorted(sorted(p.replace(" ", "").split("*")) for p in parts)

    return terms(str(e)) == terms(text)


def test_loops_of_other_extents_are_others() -> None:
    short, long = loop("i", 3), loop("i", 64)
    assert short != long
    assert (short % as_index(3)) == short
    assert str(long % as_index(3)) == "(i)%(3)"  # a proof for the short loop is none for the long one
    assert (as_index(2) - short).nonnegative()
    assert not (as_index(2) - long).nonnegative()


def test_exact_division() -> None:
    assert exact_div(b * s * 12, s * 4) == b * 3
    assert exact_div(b * s * 12, b * 5) is None
    assert exact_div((b + 1) * (s + 2), s + 2) == b + 1
    assert exact_div(b * s + 1, s) is None
    assert exact_div(b, ZERO) is None
    assert exact_div(ZERO, s) == ZERO


def test_substitution_simplifies_again() -> None:
    flat = loop("flat", b * s)
    (var,) = flat.vars()
    place = floor_div(flat, s) * 2 + remainder(flat, s)
    assert place.substitute({var: loop("i", b) * s + m}) == loop("i", b) * 2 + m


def test_coefficients() -> None:
    (row,) = m.vars()
    assert (m * 768 + n).coefficient(row) == 768
    assert (m * s + n).coefficient(row) == s
    assert (m * m).coefficient(row) is None
    assert (m // as_index(5)).coefficient(row) is None
    assert n.coefficient(row) == ZERO
    assert (m * 768 + n).without(row) == n


def test_evaluation() -> None:
    assert ((b * 3 + s) // as_index(4)).evaluate({"batch": 5, "seq": 8}) == 5
    assert maximum(b, s).evaluate({"batch": 5, "seq": 8}) == 8
    with pytest.raises(ValueError, match="m has no value outside its loop"):
        m.evaluate({"batch": 1, "seq": 2})


def test_texts() -> None:
    assert str(ZERO) == "0"
    assert str(-n * 2 + 1) in ("1 - n*2", "-n*2 + 1")
    assert str((m + 1) // as_index(5)) == "(1 + m)//(5)"


PROOFS = {
    "sizes": b,
    "a size less its least": b - 1,
    "a size from its least": s - 2,
    "room behind a loop": as_index(767) - n,
    "room behind two loops": s * 768 - m * 768 - n - 1,
    "a size below its greatest": as_index(64) - b,
    "half a size, twice": b - (b // as_index(2)) * 2,
    "strided places of a row": b + 1 - ((b + 1) // as_index(2)) * 2,
    "remainders": m % as_index(5),
    "room behind a remainder": as_index(4) - m % as_index(5),
    "clamped": as_index(9) - minimum(m, 9),
}
HALF = (s + 1) // as_index(2)  # of 3 at least
PROOFS_BY_CASES = {
    "half a size": b - b // as_index(2),
    "half a size, but one at least": b - maximum(1, b // as_index(2)),
    "room behind a loop over that": b - loop("half", maximum(1, b // as_index(2))) - 1,
    "a size times the larger half of another": b * ((s + 1) // as_index(2)) - 1,
    "the smaller of two sizes": b + s - minimum(b, s),
    "the larger of two sizes": b + s - maximum(b, s),
    "room behind a loop over a size times a half": HALF * s * 4 - loop("flat", HALF * s * 4) - 1,
    "twice a half, and the one before it or nought": HALF * 10
    - 5
    - maximum(0, HALF - 1) * 5
    - loop("rows", HALF - 1) * 5
    - loop("columns", as_index(5))
    - 1,
}
NO_PROOFS = {
    "a size may be one": b - 2,
    "a size without end": as_index(1000) - s,
    "a loop starts at nought": n - 1,
    "a size below its greatest": as_index(63) - b,
    "two sizes": b - s,
    "a size times a half that may be nought": s * (b // as_index(2)) - 1,
    "the larger of two sizes": b - maximum(b, s),
    "a loop over a size times a half, of a size less": HALF * s * 4 - loop("flat", HALF * s * 4 + 1) - 1,
    "half a size, but two at least": b - maximum(2, b // as_index(2)),
    "a third from a half": b // as_index(3) - b // as_index(2),
}


@pytest.mark.parametrize("name", PROOFS)
def test_proved(name: str) -> None:
    assert PROOFS[name].nonnegative()


@pytest.mark.parametrize("name", PROOFS_BY_CASES)
def test_proved_by_cases(name: str) -> None:
    assert nonnegative_by_cases(PROOFS_BY_CASES[name])


@pytest.mark.parametrize("name", NO_PROOFS)
def test_not_proved(name: str) -> None:
    assert not NO_PROOFS[name].nonnegative()
    assert not nonnegative_by_cases(NO_PROOFS[name])


# properties ----------------------------------------------------------------------------------------------------------
EXTENTS: dict[str, Index] = {"i": as_index(3), "j": as_index(16), "k": b, "l": s, "p": b * 4, "q": as_index(1)}
LOOPS = [Var(name, extent) for name, extent in EXTENTS.items()]


@st.composite
def polynomials(draw: st.DrawFn) -> Index:
    """Sums of a few products of sizes and loops."""
    total = as_index(draw(st.integers(-9, 40)))
    for _ in range(draw(st.integers(0, 4))):
        term = as_index(draw(st.sampled_from([-6, -1, 1, 1, 2, 3, 4, 16, 48])))
        for atom in draw(st.lists(st.sampled_from([BATCH, SEQ, *LOOPS, *LOOPS]), max_size=2)):
            term = term * of(atom)
        total = total + term
    return total


DIVISORS = [as_index(d) for d in (1, 2, 3, 4, 12, 16, 48)] + [b, s, b * 4, s * 16, b * s, b + 1]


def expressions(depth: int = 2) -> st.SearchStrategy[Index]:
    if not depth:
        return polynomials()
    inner = expressions(depth - 1)
    return st.one_of(
        inner,
        st.builds(floor_div, inner, st.sampled_from(DIVISORS)),
        st.builds(remainder, inner, st.sampled_from(DIVISORS)),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: x * y, inner, polynomials()),
    )


def places(count: int = 12) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Sizes and loop values in range, the ends of the ranges among them."""
    rng = random.Random(count)
    found = []
    for turn in range(count):
        sizes = {"batch": rng.choice([1, 2, 3, 64]), "seq": rng.choice([2, 3, 5, 17])}
        loops = {}
        for name, extent in EXTENTS.items():
            last = extent.evaluate(sizes) - 1
            loops[name] = (0, last, rng.randint(0, last))[turn % 3]
        found.append((sizes, loops))
    return found


PLACES = places()


@settings(max_examples=120, deadline=None)
@given(expressions(), st.sampled_from(DIVISORS))
def test_division_keeps_the_value(a: Index, d: Index) -> None:
    quotient, rest = floor_div(a, d), remainder(a, d)
    for at in PLACES:
        assert value(quotient, *at) == value(a, *at) // value(d, *at)
        assert value(rest, *at) == value(a, *at) % value(d, *at)


def test_an_unknown_bound_is_no_bound() -> None:
    grows = maximum(ZERO, b - 6) // as_index(2)
    assert not (1 - grows).nonnegative()
    assert str(minimum(1, grows)) == "min(1, (max(0, -6 + batch))//(2))"


@settings(max_examples=120, deadline=None)
@given(expressions(), expressions())
def test_arithmetic_keeps_the_value(x: Index, y: Index) -> None:
    for at in PLACES:
        vx, vy = value(x, *at), value(y, *at)
        assert value(x + y, *at) == vx + vy
        assert value(x - y, *at) == vx - vy
        assert value(minimum(x, y), *at) == min(vx, vy)
        assert value(maximum(x, y), *at) == max(vx, vy)


@settings(max_examples=60, deadline=None)
@given(polynomials(), polynomials())
def test_products_keep_the_value_and_divide(x: Index, y: Index) -> None:
    for at in PLACES:
        assert value(x * y, *at) == value(x, *at) * value(y, *at)
    quotient = exact_div(x * y, y)
    assert not y.terms or quotient == x


@settings(max_examples=120, deadline=None)
@given(polynomials(), polynomials())
def test_exact_division_is_exact(x: Index, y: Index) -> None:
    quotient = exact_div(x, y)
    assert quotient is None or quotient * y == x


@settings(max_examples=120, deadline=None)
@given(expressions(), st.sampled_from(LOOPS), polynomials())
def test_substitution_keeps_the_value(e: Index, var: Var, replacement: Index) -> None:
    changed = e.substitute({var: replacement})
    for sizes, loops in PLACES:
        moved = value(replacement, sizes, loops)
        if 0 <= moved < EXTENTS[var.name].evaluate(sizes):  # simplifications of e rely on the loop's range
            assert value(changed, sizes, loops) == value(e, sizes, {**loops, var.name: moved})


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_proofs_are_sound(e: Index) -> None:
    if nonnegative_by_cases(e):
        assert all(value(e, *at) >= 0 for at in PLACES)


@settings(max_examples=60, deadline=None)
@given(expressions(1))
def test_equal_indices_hash_alike(e: Index) -> None:
    again = sum(reversed([Index({mono: k}) for mono, k in e.terms.items()]), start=ZERO)
    assert again == e
    assert hash(again) == hash(e)
    assert str(again) == str(e)


def test_long_proofs_give_up() -> None:
    many = sum((loop(f"v{i}", 4) * (-1) for i in range(60)), start=as_index(1000))
    assert not many.nonnegative()  # true, but longer than the prover goes; it must not say so wrongly nor hang
    sizes = [of(Size(f"n{i}", 1, 9)) for i in range(24)]
    choices = sum((maximum(x, y) * (-1) for x, y in pairwise(sizes)), start=as_index(1000))
    assert not nonnegative_by_cases(choices)
    assert ix._nonnegative.cache_info().maxsize is not None
