"""Products that are fused with sums: which, and that places and values are the same."""

from __future__ import annotations

import pytest
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Const, Expr, Load, cast
from mycc.compiler.ir.index import Indirect, Var, as_index, of
from mycc.compiler.ir.nodes import Map, Nest, Origin, Store
from mycc.compiler.schedule.loops.fma_contraction import with_fma

from ..helpers.programs import call

I = Var("i", as_index(9))  # noqa: E741
a, b, c, d = (Load(Buffer(name, "f32", as_index(9), "input"), of(I)) for name in "abcd")
n, m = (Load(Buffer(name, "i64", as_index(9), "input"), of(I)) for name in "nm")
AB, CD = call("mul", a, b), call("mul", c, d)
FOUR = Const(4.0, "f32")


def nodes_of(*values: Expr) -> Map:
    stores = tuple(Store(Buffer(f"y{i}", e.dtype, as_index(9), "output", i), of(I), e) for i, e in enumerate(values))
    return Map((I,), stores, Origin())


def fused(*values: Expr) -> list[str]:
    return [str(store.value).replace("[i]", "") for store in with_fma(nodes_of(*values)).stores]


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (call("add", AB, c), "fma(a, b, c)"),
        (call("add", c, AB), "fma(a, b, c)"),
        (call("sub", AB, c), "fma(a, b, neg(c))"),
        (call("sub", AB, FOUR), "fma(a, b, -4.0)"),
        (call("sub", c, AB), "fma(neg(a), b, c)"),
        (call("sub", c, call("mul", a, FOUR)), "fma(a, -4.0, c)"),
        (call("add", AB, CD), "fma(a, b, mul(c, d))"),
        (call("sub", AB, CD), "fma(a, b, neg(mul(c, d)))"),
        (call("add", call("add", AB, c), d), "add(fma(a, b, c), d)"),
        (call("add", a, call("add", call("mul", b, c), CD)), "add(a, fma(b, c, mul(c, d)))"),
        (call("add", call("mul", call("add", AB, c), d), a), "fma(fma(a, b, c), d, a)"),
        (call("add", call("neg", AB), c), "add(neg(mul(a, b)), c)"),
        (call("add", AB, AB), "add(mul(a, b), mul(a, b))"),
        (call("mul", AB, call("add", AB, c)), "mul(mul(a, b), add(mul(a, b), c))"),
        (call("add", call("mul", n, m, dtype="i64"), n, dtype="i64"), "add(mul(n, m), n)"),
    ],
)
def test_sums(e: Expr, expected: str) -> None:
    assert fused(e) == [expected]


def test_a_product_of_two_results_is_no_part_of_one() -> None:
    assert fused(call("add", AB, c), call("sub", AB, d)) == ["add(mul(a, b), c)", "sub(mul(a, b), d)"]
    assert fused(call("add", AB, c), call("sub", call("add", AB, c), d)) == ["fma(a, b, c)", "sub(fma(a, b, c), d)"]


def test_stages_of_a_nest_count_for_themselves() -> None:
    node = with_fma(Nest((I,), (), Origin(), (nodes_of(call("add", AB, c)), nodes_of(call("add", AB, d)))))
    assert [stage.stores[0].value.op for stage in node.stages] == ["fma", "fma"]


def test_places_and_what_lies_between_them_agree() -> None:
    """The place is the floor of a sum, the weight what is over: both of the fused sum."""
    place = call("add", AB, c)
    floor = call("floor", place)
    at = Indirect(cast(floor, "i64"), as_index(9), True)
    node = with_fma(nodes_of(call("mul", Load(a.buffer, of(at)), call("sub", place, floor))))
    load, weight = node.stores[0].value.args
    (inside,) = load.children
    assert inside.args[0] == weight.args[1]
    assert inside.args[0].args[0].op == "fma"
