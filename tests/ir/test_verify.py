"""The verifier: every law has a program that breaks it, and its message."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Acc, Const, Expr, Load
from mycc.compiler.ir.index import Index, Indirect, Var, as_index, of
from mycc.compiler.ir.nodes import Map, Nest, Node, Origin, Reduce, Reduction, Store
from mycc.compiler.ir.printer import print_program
from mycc.compiler.ir.program import Program
from mycc.compiler.ir.verify import BrokenLaw, verify_program

from ..helpers.programs import call

X = Buffer("x", "f32", as_index(12), "input", 0)
B = Buffer("b", "bool", as_index(12), "input", 1)
N = Buffer("n", "i64", as_index(12), "input", 2)
Y = Buffer("y", "f32", as_index(12), "output", 0)
T = Buffer("t", "f32", as_index(12), "temp")
I, J = Var("i", as_index(3)), Var("j", as_index(4))  # noqa: E741
ROW, AT = (I, J), of(I) * 4 + of(J)


def program(*nodes: Node) -> Program:
    return Program("test", (X, B, N), (Y,), (), nodes)  # type: ignore[arg-type]


def node(value: Expr, buffer: Buffer = Y, index: Index = AT, dims: tuple[Var, ...] = ROW) -> Map:
    return Map(dims, (Store(buffer, index, value),), Origin(("aten.op",), ("model.py:3",)))


x = Load(X, AT)
acc = Acc("acc", "f32")
rows = Reduce((I,), (Store(Y, of(I), acc),), Origin(), (J,), (Reduction(acc, "sum", x),))

LAWS: dict[str, tuple[Program, str]] = {
    "read before written": (program(node(Load(T, AT))), "t is read before it is written"),
    "input written": (program(node(x, X), node(x)), "x is an input and is written"),
    "output never written": (program(node(x, T)), "output y is never written"),
    "names alike": (program(node(x, dims=(I, Var("i", as_index(4))))), "two loops are called alike: i, i"),
    "no store": (program(replace(node(x), stores=()), node(x)), "a node stores nothing"),
    "store type": (program(node(Load(N, AT))), "a i64 value is stored in y, which is f32"),
    "store outside": (
        program(node(x, index=AT + 1)),
        r"the store to y\[1 \+ i\*4 \+ j\] may lie outside its 12 elements",
    ),
    "load outside": (program(node(Load(X, AT * 2))), "may lie outside the buffer's 12 elements"),
    "load before": (program(node(Load(X, AT - 1))), "may lie outside the buffer's 12 elements"),
    "loop of another": (program(node(Load(X, of(Var("k", as_index(2)))))), "loop k is used outside of it"),
    "foreign sum": (program(node(acc)), "accumulator acc does not belong to this node"),
    "arity": (program(node(call("add", x))), "add takes 2 operands"),
    "operand types": (program(node(call("add", x, Load(N, AT)))), "operands of different types f32, i64"),
    "operator's types": (program(node(call("sin", Load(N, AT)))), "sin does not take i64"),
    "condition": (program(node(call("where", x, x, x))), "the condition of a where is f32"),
    "constant's type": (program(node(call("add", x, Const(1.0, "f8")))), "1.0f8 has the unknown type f8"),
    "rows of a nest": (
        program(Nest((J,), (), Origin(), (rows,)), node(x)),
        "a stage of a nest does not start with its rows",
    ),
    "reduction outside": (
        program(replace(rows, reductions=(Reduction(acc, "sum", Load(X, AT + 12)),))),
        "may lie outside",
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_law(law: str) -> None:
    broken, message = LAWS[law]
    with pytest.raises(BrokenLaw, match=message):
        verify_program(broken)


def test_laws_hold_for_right_programs() -> None:
    at = of(Indirect(Load(N, of(J)), as_index(12), wrap=True))
    verify_program(program(node(call("where", Load(B, AT), x, Const(0.0, "f32")))))
    verify_program(program(node(Load(X, at), T), node(call("maximum", Load(T, AT), x))))
    verify_program(program(rows))


def test_the_report_shows_the_neighbourhood_and_the_pass() -> None:
    broken = program(node(x, T), node(call("add", x)))
    with pytest.raises(BrokenLaw) as caught:
        verify_program(broken, after="inlining")
    text = str(caught.value)
    assert text.startswith("add takes 2 operands: add(x[i*4 + j]) (after inlining)\n")
    assert "  map[i:3, j:4] t[i*4 + j] = x[i*4 + j]   # aten.op model.py:3\n> map" in text


def test_printer() -> None:
    stage = Map(ROW, (Store(Y, AT, call("sub", x, Load(T, of(I)))),), Origin())
    one = replace(rows, stores=(Store(T, of(I), acc),))
    text = print_program(program(Nest((I,), (), Origin(("aten.softmax",), ("model.py:9",)), (one, stage), (T,))))
    assert text == (
        "program test()\n"
        "  input x: f32[12]\n  input b: bool[12]\n  input n: i64[12]\n  output y: f32[12]\n"
        "  nest[i:3] locals t\n"
        "    reduce[i:3; j:4] acc = sum x[i*4 + j] -> t[i] = acc\n"
        "    map[i:3, j:4] y[i*4 + j] = sub(x[i*4 + j], t[i])   # aten.softmax model.py:9\n"
    )
