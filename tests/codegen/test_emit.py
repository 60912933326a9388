"""The printer of expressions and indices: precedence, names, lanes, literals."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mycc.compiler.codegen.cpu.emit import Emitter, literal
from mycc.compiler.codegen.cpu.indentation import indent
from mycc.compiler.codegen.cpu.scope import Argument, Scope
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Acc, Call, Const, Expr, IndexValue, Load, cast
from mycc.compiler.ir.index import Index, Indirect, Size, Var, as_index, maximum, minimum, of
from mycc.compiler.ir.nodes import Store

from ..helpers.programs import call

I, V = Var("i", as_index(9)), Var("v", as_index(40))  # noqa: E741
X, Y = Buffer("x", "f32", as_index(360), "input", 0), Buffer("y", "f32", as_index(360), "output", 0)
H, IDS = Buffer("h", "f16", as_index(360), "input", 1), Buffer("ids", "i64", as_index(9), "input", 2)
i, v = of(I), of(V)
x = Load(X, i * 40 + v)


def emitter(vector: Var | None = V, **rest: object) -> Emitter:
    scope = Scope(frozenset({Y}))
    scope.loop(I, "i")
    scope.loop(V, "v")
    return Emitter(scope, vector, **rest)  # type: ignore[arg-type]


def text(e: Expr, vector: Var | None = V) -> str:
    return emitter(vector).value(e)


a, b, c = (Load(X, i * 40 + v + k) for k in (0, 1, 2))
A, B, C = "load(x0 + i * 40 + v)", "load(x0 + i * 40 + v + 1)", "load(x0 + i * 40 + v + 2)"


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (call("sub", a, call("sub", b, c)), f"{A} - ({B} - {C})"),
        (call("sub", call("sub", a, b), c), f"{A} - {B} - {C}"),
        (call("mul", call("add", a, b), c), f"({A} + {B}) * {C}"),
        (call("add", call("mul", a, b), c), f"{A} * {B} + {C}"),
        (call("div", a, call("mul", b, c)), f"{A} / ({B} * {C})"),
        (call("neg", call("neg", a)), f"-(-{A})"),
        (call("neg", call("add", a, b)), f"-({A} + {B})"),
        (call("maximum", call("add", a, b), c), f"maximum({A} + {B}, {C})"),
        (call("sub", a, Const(-2.0, "f32")), f"{A} - -2.0f"),
    ],
)
def test_precedence(e: Expr, expected: str) -> None:
    assert emitter_text(e) == expected


def emitter_text(e: Expr) -> str:
    """The expression as one text, however long: names put back."""
    em = emitter()
    shown = em.value(e)
    for line in reversed(em.body):
        name, value = re.fullmatch(r"const auto (\w+) = (.*);", line).groups()  # type: ignore[union-attr]
        shown = re.sub(rf"\b{name}\b", lambda _, value=value: value, shown)
    return shown


def test_loads() -> None:
    assert text(x) == "load(x0 + i * 40 + v)"
    assert text(Load(X, v * 9 + i)) == "gather(x0 + i + v * 9, 9)"
    assert text(Load(X, v // as_index(12))) == "gather_at(x0, place_quotient(iota(v), 12))"
    assert text(x, vector=None) == "x0[i * 40 + v]"
    assert text(Load(H, i * 40 + v), vector=None) == "load_scalar(x0 + i * 40 + v)"
    assert emitter(tail=True).value(x) == "load_tail(x0 + i * 40 + v, count)"


def test_what_does_not_move_stands_in_front_of_the_loop() -> None:
    em = emitter()
    still = call("exp", Load(X, i))
    assert em.value(call("mul", x, still)) == "load(x0 + i * 40 + v) * s1"
    assert em.pre == ["const auto s0 = x0[i];", "const auto s1 = exp(s0);"]
    assert not em.body


def test_shared_expressions_are_computed_once() -> None:
    em = emitter()
    shared = call("exp", x)
    em.count_uses([call("add", shared, shared)])
    assert em.value(call("add", shared, shared)) == "t0 + t0"
    assert em.body == ["const auto t0 = exp(load(x0 + i * 40 + v));"]


def test_functions_of_lanes_and_numbers_take_vectors_alone() -> None:
    assert text(call("maximum", x, Const(0.0, "f32"))) == "maximum(load(x0 + i * 40 + v), splat(0.0f))"


def test_stores() -> None:
    for value, index, tail, line in (
        (x, i * 40 + v, False, "store(y0 + i * 40 + v, load(x0 + i * 40 + v));"),
        (x, i * 40 + v, True, "store_tail(y0 + i * 40 + v, load_tail(x0 + i * 40 + v, count), count);"),
        (x, v * 9 + i, False, "scatter(y0 + i + v * 9, 9, load(x0 + i * 40 + v));"),
        (Const(1.0, "f32"), v, False, "store(y0 + v, splat(1.0f));"),
    ):
        em = emitter(tail=tail)
        em.store(Store(Y, index, value))
        assert em.body[-1] == line
    with pytest.raises(ValueError, match="has no vector form"):
        emitter().store(Store(Y, v // as_index(12), x))


def test_indices_from_memory_are_checked() -> None:
    em = emitter()
    at = of(Indirect(Load(IDS, i), as_index(9), wrap=True))
    assert em.value(Load(X, at * 40 + v)) == "load(x0 + v + at0 * 40)"
    assert em.pre == [
        "const auto s0 = x1[i];",
        'const auto at0 = checked_index(host, s0, 9, true, "index out of range");',
    ]


def test_what_is_even_within_a_vector_is_read_for_each() -> None:
    em = emitter()
    scale = Load(X, i * 3 + v // as_index(16))
    em.store(Store(Y, v, call("mul", x, scale)))
    assert em.pre == []
    assert em.body == ["const auto s0 = x0[i * 3 + (v / 16)];", "store(y0 + v, load(x0 + i * 40 + v) * s0);"]


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        (Const(1.0, "f32"), "1.0f"),
        (Const(0.1, "f32"), "0.1f"),
        (Const(1e-12, "f32"), "1e-12f"),
        (Const(0.1, "f64"), "0.1"),
        (Const(3.0, "f16"), "3.0f"),
        (Const(float("inf"), "f32"), "__builtin_inff()"),
        (Const(float("-inf"), "f64"), "-__builtin_inf()"),
        (Const(float("nan"), "f32"), '__builtin_nanf("")'),
        (Const(-0.0, "f32"), "-0.0f"),
        (Const(-3, "i64"), "(int64_t)-3"),
        (Const(-(2**63), "i64"), "INT64_MIN"),
        (Const(7, "u8"), "7"),
        (Const(True, "bool"), "true"),
    ],
)
def test_literals(constant: Const, expected: str) -> None:
    assert literal(constant).text == expected


def test_casts() -> None:
    assert text(cast(x, "i64")) == "to_i64(load(x0 + i * 40 + v))"
    assert text(cast(x, "f16")) == "round_f16(load(x0 + i * 40 + v))"
    assert text(cast(Load(H, i * 40 + v), "f32")) == "load(x0 + i * 40 + v)"  # loads widen
    assert text(cast(cast(x, "i32"), "u8")) == "to_u8(to_i32(load(x0 + i * 40 + v)))"


def test_positions_as_values() -> None:
    assert text(IndexValue(v)) == "iota(v)"
    assert text(IndexValue(v * 3 + i)) == "3 * iota(0) + (i + v * 3)"
    assert text(IndexValue(i + 1)) == "(int64_t)(i + 1)"
    turns = "place_remainder(place_quotient(iota(v), 4), 4)"  # lanes without one step: a sum is a factor all the same
    moved = call("mul", IndexValue((v // 4) % 4 + 1), Const(18, "i64"))
    assert text(moved) == f"({turns} + 1) * (int64_t)18"


def test_sizes_of_the_user_do_not_meet_our_names() -> None:
    scope = Scope(frozenset())
    em = Emitter(scope, None)
    assert em.index(of(Size("batch", 1, 9)) * 3) == "size_batch * 3"
    assert em.index(of(Argument("batch", 7, 7))) == "batch"
    assert [(p.name, p.size) for p in scope.params()] == [("size_batch", "size_batch"), ("batch", "7")]
    assert of(Size("batch", 7, 7)) != of(Argument("batch", 7, 7))


def test_accumulators() -> None:
    em = Emitter(Scope(frozenset()), V, accs={"acc": "acc0"}, vector_accs=frozenset({"acc"}))
    assert em.value(Call("neg", (Acc("acc", "f32"),), "f32")) == "-acc0"
    assert Emitter(Scope(frozenset()), V, accs={"acc": "acc0"}).lanes(Acc("acc", "f32")) == "splat(acc0)"


def test_indent() -> None:
    assert indent("a {\nb;\n} else {\n\nc;\n}\n\n\nd;") == "a {\n  b;\n} else {\n  c;\n}\n\nd;\n"
    assert indent("f([&] {\n#pragma x\n});") == "f([&] {\n#pragma x\n});\n"


# indices: the printed text has the value of the index ---------------------------------------------------------------
N = Size("n", 1, 50)


@st.composite
def indices(draw: st.DrawFn, depth: int = 2) -> Index:
    total = as_index(draw(st.integers(-5, 5)))
    for _ in range(draw(st.integers(1, 3))):
        term = as_index(draw(st.sampled_from([-7, -1, 1, 2, 40])))
        for atom in draw(st.lists(st.sampled_from([I, V, N]), max_size=2)):
            term = term * of(atom)
        total = total + term
    if depth:
        other = draw(indices(depth - 1))
        op = draw(st.sampled_from(["//", "%", "min", "max", "+"]))
        divisor = draw(st.sampled_from([as_index(3), as_index(16), of(N), of(N) + 1]))
        made = {
            "//": total // divisor,
            "%": total % divisor,
            "min": minimum(total, other),
            "max": maximum(total, other),
        }
        return made.get(op, total) + other
    return total


FUNCTIONS = {"floor_div": lambda p, q: p // q, "remainder": lambda p, q: p % q, "minimum": min, "maximum": max}


@settings(max_examples=150, deadline=None)
@given(indices())
def test_printed_indices_have_their_value(index: Index) -> None:
    """Python reads these texts as C++ does: quotients that C++ would truncate are printed as calls."""
    shown = emitter(None).index(index).replace("(int64_t)", "").replace("/", "//")
    rng = random.Random(1)
    for _ in range(6):
        at = {"i": rng.randrange(9), "v": rng.randrange(40), "size_n": rng.randint(1, 50)}
        values = {I: as_index(at["i"]), V: as_index(at["v"]), N: as_index(at["size_n"])}
        assert eval(shown, {**FUNCTIONS, **at}) == index.substitute(values).constant, shown


def test_printed_indices_compile_as_they_read(tmp_path: Path) -> None:
    """A few of them in C++, with the negative numbers that truncate there."""
    cases = [
        (i - v) // as_index(3),
        (i * 40 - v) % as_index(7),
        minimum(i, v - 5) * 2,
        (v // as_index(12)) % as_index(2),
    ]
    em = emitter(None)
    body = "".join(f'printf("%lld\\n", (long long)({em.index(e)}));' for e in cases)
    functions = (
        "static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }\n"
        "static int64_t remainder(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }\n"
        "static int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }\n"
    )
    loops = f"for (int64_t i = 0; i < 9; ++i) for (int64_t v = 0; v < 40; ++v) {{ {body} }}"
    main = f"int main() {{ {loops} (void)remainder; (void)minimum; }}\n"
    (tmp_path / "t.cpp").write_text(f"#include <cstdio>\n#include <cstdint>\n{functions}{main}")
    subprocess.run(["g++", "-O0", "t.cpp", "-o", "t"], cwd=tmp_path, check=True)
    printed = subprocess.run([str(tmp_path / "t")], capture_output=True, text=True, check=True).stdout.split()
    points = [(p, q) for p in range(9) for q in range(40)]
    wanted = [e.substitute({I: as_index(p), V: as_index(q)}).constant for p, q in points for e in cases]
    assert list(map(int, printed)) == wanted


def test_what_a_choice_may_leave_out_is_loaded_whole() -> None:
    """A masked load of a line of which nothing is taken is none: streams with gaps are not prefetched."""

    def printed(condition: Expr, tail: bool = False) -> str:
        e = emitter(tail=tail)
        chosen = call("where", condition, call("mul", x, Const(2.0, "f32")), Const(0.0, "f32"))
        return "\n".join([e.value(chosen), *e.body, *e.pre])

    places = call("lt", IndexValue(v), IndexValue(i * 2))
    assert "load_whole(x0" in printed(places)
    assert "load_whole(" not in printed(places, tail=True)
    assert "load_whole(x0" in printed(call("lt", IndexValue(i), IndexValue(i * i)))


@pytest.mark.parametrize(
    ("columns", "pitch", "streams"),
    [
        (64, 64, True),
        (16, 32, True),
        (8, 16, False),
        (24, 32, False),
        (56, 64, False),
        (264, 272, True),
        (40, 40, False),
    ],
)
def test_rows_of_whole_lines_are_stored_non_temporally(columns: int, pitch: int, streams: bool) -> None:
    """Half a line that is written by non-temporal stores alone is read again, and written twice: 8 lanes took 86 times
    as long."""
    large = Buffer("large", "f32", as_index(pitch << 20), "output", 0)
    rows, column = Var("r", as_index(1 << 20)), Var("c", as_index(columns))
    scope = Scope(frozenset({large}), nontemporal=(large,))
    scope.loop(rows, "r")
    scope.loop(column, "c")
    e = Emitter(scope, column)
    e.store(Store(large, of(rows) * pitch + of(column), Const(1.0, "f32")))
    assert (", streams" in "\n".join(e.body)) == streams
