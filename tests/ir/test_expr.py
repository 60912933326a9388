"""Scalar expressions: equality by value, casts of constants, rewriting."""

from __future__ import annotations

from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Acc, Call, Const, IndexValue, Load, cast, rewrite, substitute
from mycc.compiler.ir.index import Indirect, Var, as_index, of

X = Buffer("x", "f32", as_index(64), "input", 0)
IDS = Buffer("ids", "i64", as_index(8), "input", 1)
I, J = Var("i", as_index(8)), Var("j", as_index(8))  # noqa: E741
x_i = Load(X, of(I) * 8)


def test_equal_expressions_are_equal_by_value() -> None:
    a = Call("add", (x_i, Const(1.0, "f32")), "f32")
    b = Call("add", (Load(X, of(I) * 8), Const(1.0, "f32")), "f32")
    assert a == b
    assert hash(a) == hash(b)
    assert a != Call("add", (Const(1.0, "f32"), x_i), "f32")
    assert Load(X, of(I)) != Load(Buffer("x", "f32", as_index(64), "input", 0), of(I))  # another buffer of that name


def test_constants_differ_by_what_is_printed() -> None:
    assert Const(0.0, "f32") != Const(-0.0, "f32")
    assert Const(1, "i64") != Const(True, "bool")
    assert Const(1.0, "f32") != Const(1.0, "f64")
    assert Const(float("nan"), "f32") == Const(float("nan"), "f32")


def test_casts() -> None:
    assert cast(x_i, "f32") is x_i
    assert cast(Const(3, "i64"), "f32") == Const(3.0, "f32")
    assert cast(Const(2.5, "f32"), "bool") == Const(True, "bool")
    assert str(cast(x_i, "i64")) == "to_i64(x[i*8])"
    assert cast(Const(2.5, "f32"), "i64") == Call("cast", (Const(2.5, "f32"),), "i64")  # truncation is C++'s to do
    assert cast(Const(True, "bool"), "i32") == Const(1, "i32")


def test_loads_inside_indices_are_found() -> None:
    at = of(Indirect(Load(IDS, of(I)), as_index(8)))
    e = Call("neg", (Load(X, at * 8 + of(J)),), "f32")
    assert {ld.buffer.name for ld in e.loads} == {"x", "ids"}
    assert e.vars() == {I, J}
    assert str(e) in ("neg(x[j + <ids[i]>*8])", "neg(x[<ids[i]>*8 + j])")


def test_substitution_reaches_indices_of_indices() -> None:
    at = of(Indirect(Load(IDS, of(I)), as_index(8)))
    moved = substitute(Load(X, at), {I: of(J) + 1})
    assert moved == Load(X, of(Indirect(Load(IDS, of(J) + 1), as_index(8))))


def test_rewrite_replaces_leaves_and_shares_the_rest() -> None:
    untouched = Call("exp", (Load(X, of(J)),), "f32")
    e = Call("add", (Call("neg", (x_i,), "f32"), untouched), "f32")
    found = rewrite(e, lambda leaf: Acc("acc", "f32") if leaf == x_i else None)
    assert str(found) == "add(neg(acc), exp(x[j]))"
    assert isinstance(found, Call)
    assert found.args[1] is not None
    assert rewrite(untouched, lambda _: None) == untouched


def test_a_replacement_is_seen_at_its_new_place() -> None:
    seen = []

    def leaf(e: object) -> None:
        seen.append(str(e))

    rewrite(x_i, leaf, {I: as_index(3)})  # type: ignore[arg-type]
    assert seen == ["x[24]"]
    assert str(substitute(IndexValue(of(I) + 1), {I: as_index(3)})) == "(4)"
