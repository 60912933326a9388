"""What conditions say of indices."""

from __future__ import annotations

from mycc.compiler.codegen.cuda.facts import facts, plain
from mycc.compiler.ir.expr import Call, Const, Expr, IndexValue
from mycc.compiler.ir.index import Index, Size, Var, as_index, maximum, minimum, of

i = of(Var("i", as_index(64)))
n = of(Size("n", 1, 100))


def compare(op: str, a: Index, b: int | Index) -> Expr:
    right: Expr = IndexValue(b) if isinstance(b, Index) else Const(b, "i64")
    return Call(op, (IndexValue(a), right), "bool")


def test_a_clamp_that_the_condition_makes_needless_goes() -> None:
    below = compare("lt", i, 32)
    assert plain(minimum(i, 31), facts(below, True)) == i
    assert plain(maximum(i - 32, 0), facts(below, False)) == i - 32
    assert plain(minimum(i, 31) * 7 + 3, facts(below, True)) == i * 7 + 3


def test_a_clamp_stays_where_the_condition_does_not_reach() -> None:
    below = compare("lt", i, 33)
    assert plain(minimum(i, 31), facts(below, True)) == minimum(i, 31)
    assert plain(maximum(i - 32, 0), facts(compare("lt", i, 31), False)) == maximum(i - 32, 0)
    assert plain(minimum(i, 31), facts(below, False)) == 31
    assert plain(minimum(i, 31), facts(compare("lt", i, 20), False)) == minimum(i, 31)


def test_every_comparison_and_both_its_sides() -> None:
    for op, held, failed in (
        ("lt", minimum(i, 31), maximum(i - 32, 0)),
        ("le", minimum(i, 32), maximum(i - 33, 0)),
        ("gt", maximum(i - 33, 0), minimum(i, 32)),
        ("ge", maximum(i - 32, 0), minimum(i, 31)),
    ):
        for clamped, holds in ((held, True), (failed, False)):
            assert plain(clamped, facts(compare(op, i, 32), holds)) != clamped, (op, holds)


def test_conjunctions_and_sizes() -> None:
    both = Call("logical_and", (compare("ge", i - 2, as_index(0)), compare("lt", i - 2, n)), "bool")
    assert plain(minimum(maximum(i - 2, 0), n - 1), facts(both, True)) == i - 2
    assert facts(both, False) == []
    either = Call("logical_or", (compare("lt", i, 2), compare("ge", i - 2, n)), "bool")
    assert plain(minimum(maximum(i - 2, 0), n - 1), facts(either, False)) == i - 2
    assert facts(Const(True, "bool"), True) == []
