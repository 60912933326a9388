"""Each primitive keeps the values of random nodes: extents from 0 on, strides in any order, negative and zero ones,
values that are NaN and infinite. What a law forbids is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mycc.compiler.ir import rewrite
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.evaluate import evaluate
from mycc.compiler.ir.expr import Acc, Expr, IndexValue, Load, cast
from mycc.compiler.ir.index import ONE, Atom, Index, Var, as_index, of, product, row_major
from mycc.compiler.ir.nodes import Map, Node, Origin, Reduce, Reduction, Store
from mycc.compiler.ir.program import Program

from ..helpers.evaluation import difference
from ..helpers.programs import call

SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0)


@dataclass(frozen=True)
class Case:
    """A node over loops a, b, c that reads x, and what x holds."""

    node: Map | Reduce
    x: Buffer
    values: np.ndarray[Any, Any]

    @property
    def loops(self) -> tuple[Var, ...]:
        return self.node.dims + (self.node.rdims if isinstance(self.node, Reduce) else ())

    def run(self, *nodes: Node) -> list[np.ndarray[Any, Any]]:
        results = tuple(self.node.writes())
        program = Program("test", (self.x,), results, (), nodes)  # type: ignore[arg-type]
        return list(evaluate(program, {self.x: self.values}, {}).values())

    def keeps(self, *nodes: Node) -> bool:
        return not difference(self.run(*nodes), self.run(self.node))


def _strides(draw: st.DrawFn, extents: Sequence[int]) -> tuple[tuple[int, ...], int, int]:
    """Strides of the loops, the place of the first element, and how many elements there are."""
    order = draw(st.permutations(range(len(extents))))
    strides, step = [0] * len(extents), draw(st.integers(1, 3))
    for i in order:
        strides[i] = draw(st.sampled_from((step, step, -step, 0)))
        step *= max(extents[i], 1)
    low = sum(min(s * (e - 1), 0) for s, e in zip(strides, extents, strict=True) if e)
    high = sum(max(s * (e - 1), 0) for s, e in zip(strides, extents, strict=True) if e)
    return tuple(strides), -low, high - low + 1


@st.composite
def cases(draw: st.DrawFn, reduced: int = 0) -> Case:
    """`reduced`: how many of the three loops are reduced."""
    extents = [draw(st.sampled_from((0, 1, 2, 3, 4, 6, 7))) for _ in range(3)]
    loops = tuple(Var(name, as_index(n)) for name, n in zip("abc", extents, strict=True))
    strides, first, size = _strides(draw, extents)
    x = Buffer("x", "f64", as_index(size), "input", 0)
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    values = rng.standard_normal(size)
    if draw(st.booleans()):
        values[rng.integers(0, size)] = draw(st.sampled_from(SPECIAL))
    at = sum((of(v) * s for v, s in zip(loops, strides, strict=True)), as_index(first))
    value: Expr = call("add", Load(x, at), cast(IndexValue(of(loops[1]) * 2 + of(loops[0])), "f64"), dtype="f64")
    kept, inner = loops[: 3 - reduced], loops[3 - reduced :]
    y = Buffer("y", "f64", product(v.extent for v in kept), "output", 0)
    if not reduced:
        return Case(Map(kept, (Store(y, row_major(kept), value),), Origin()), x, values)
    acc = Acc("acc", "f64")
    reduction = Reduction(acc, draw(st.sampled_from(("sum", "max", "prod", "min"))), value)
    done = call("mul", acc, cast(IndexValue(of(kept[0]) + 1), "f64"), dtype="f64")
    return Case(Reduce(kept, (Store(y, row_major(kept), done),), Origin(), inner, (reduction,)), x, values)


anything = st.integers(0, 2).flatmap(cases)
some = settings(max_examples=60, deadline=None)


def _choose(data: st.DataObject, choices: Sequence[Any]) -> Any:
    return choices[data.draw(st.integers(0, len(choices) - 1))]


@some
@given(anything, st.data())
def test_split(case: Case, data: st.DataObject) -> None:
    loop = _choose(data, case.loops)
    extent = loop.extent.constant or 0
    inner = _choose(data, [d for d in range(1, extent + 1) if extent % d == 0] or [3])
    outer = Var("o", as_index(extent // inner))
    assert case.keeps(rewrite.split(case.node, loop, outer, Var("i", as_index(inner))))


@some
@given(anything, st.data())
def test_fuse_where_accesses_walk_as_one(case: Case, data: st.DataObject) -> None:
    fields = [case.node.dims] + ([case.node.rdims] if isinstance(case.node, Reduce) else [])
    pairs = [pair for loops in fields for pair in itertools.pairwise(loops)]
    if pairs:
        fused = rewrite.fuse(case.node, *_choose(data, pairs))
        assert fused is None or case.keeps(fused)


def test_fuse_takes_what_is_contiguous_and_nothing_else() -> None:
    a, b = Var("a", as_index(3)), Var("b", as_index(5))
    x, y = Buffer("x", "f64", as_index(24), "input", 0), Buffer("y", "f64", as_index(15), "output", 0)

    def node(pitch: int) -> Map:
        return Map((a, b), (Store(y, of(a) * 5 + of(b), Load(x, of(a) * pitch + of(b))),), Origin())

    fused = rewrite.fuse(node(5), a, b)
    assert fused is not None
    assert [v.extent for v in fused.dims] == [as_index(15)]
    assert Case(node(5), x, np.arange(24.0)).keeps(fused)
    assert rewrite.fuse(node(8), a, b) is None


@some
@given(anything, st.data())
def test_flatten(case: Case, data: st.DataObject) -> None:
    loops = _choose(data, [case.node.dims] + ([case.node.rdims] if isinstance(case.node, Reduce) else []))
    flat = Var("k", product(v.extent for v in loops))
    assert case.keeps(rewrite.flatten(case.node, loops, flat))


@some
@given(anything, st.data())
def test_reorder_and_reverse(case: Case, data: st.DataObject) -> None:
    order = data.draw(st.permutations(case.node.dims))
    backwards = [v for v in order if data.draw(st.booleans())]
    assert case.keeps(rewrite.reorder(rewrite.reverse(case.node, backwards), order))


@some
@given(cases(), st.data())
def test_unroll(case: Case, data: st.DataObject) -> None:
    assert isinstance(case.node, Map)
    unrolled = rewrite.unroll(case.node, _choose(data, case.node.dims))
    if unrolled.stores:  # a loop without iterations leaves nothing to write
        assert case.keeps(unrolled)


@some
@given(anything, st.data())
def test_rename(case: Case, data: st.DataObject) -> None:
    names = {v: Var(f"{v.name}_new", v.extent) for v in case.loops if data.draw(st.booleans())}
    assert case.keeps(rewrite.rename(case.node, names))


@some
@given(st.integers(1, 2).flatmap(cases), st.data())
def test_rfactor(case: Case, data: st.DataObject) -> None:
    node = case.node
    assert isinstance(node, Reduce)
    first, rest = node.rdims[0], node.rdims[1:]
    extent = first.extent.constant or 0
    pieces = _choose(data, [d for d in range(1, extent + 1) if extent % d == 0] or [2])
    piece, inner = Var("p", as_index(pieces)), Var("l", as_index(extent // pieces))
    dims = (piece, *node.dims) if data.draw(st.booleans()) else (*node.dims, piece)
    moved: dict[Atom, Index] = {first: of(piece) * inner.extent + of(inner)}
    partial, reductions = rewrite.rfactor(
        node, dims, (inner, *rest), moved, row_major(dims), product(v.extent for v in dims)
    )
    assert case.keeps(partial, replace(node, rdims=(piece,), reductions=reductions))


@some
@given(st.integers(1, 2).flatmap(cases))
def test_unroll_reduction(case: Case) -> None:
    assert isinstance(case.node, Reduce)
    if all(v.extent.constant for v in case.node.rdims):
        assert case.keeps(rewrite.unroll_reduction(case.node))


@some
@given(anything, st.data())
def test_cache_read(case: Case, data: st.DataObject) -> None:
    """The operand is read from a copy with its loops in another order."""
    (load,) = dict.fromkeys(ld for e in case.node.expressions() for ld in e.loads)
    order = tuple(data.draw(st.permutations(case.loops)))
    copy = Buffer("copy", "f64", product(v.extent for v in order), "temp")
    place = row_major(order)
    first = Map(order, (Store(copy, place, load),), Origin())
    assert case.keeps(first, rewrite.cache_read(case.node, {load: Load(copy, place)}))


@some
@given(anything, st.data())
def test_compute_at(case: Case, data: st.DataObject) -> None:
    """A second node reads what the case makes, row by row; some of it is local to the row, and read backwards there."""
    first, count = case.node, data.draw(st.integers(0, len(case.node.dims)))
    rows, inner = case.node.dims[:count], case.node.dims[count:]
    made = Buffer("made", "f64", product(v.extent for v in first.dims), "temp")
    maker = replace(first, stores=tuple(Store(made, s.index, s.value) for s in first.stores))
    row = product(v.extent for v in inner)
    n = Var("n", row)
    back = row_major(rows) * row + row - 1 - of(n)
    reader = Map((*rows, n), (Store(first.stores[0].buffer, row_major((*rows, n)), Load(made, back)),), Origin())
    local = {made: Buffer("made", "f64", row, "local")} if data.draw(st.booleans()) else {}
    nest = rewrite.compute_at((maker, reader), rows, local)
    assert not difference(case.run(nest), case.run(maker, reader))


A, B = Var("a", as_index(6)), Var("b", as_index(4))
RESULT = Buffer("y", "f64", as_index(24), "output", 0)
NODE = Map((A, B), (Store(RESULT, of(A) * 4 + of(B), IndexValue(of(A))),), Origin())
REFUSED: dict[str, Callable[[], object]] = {
    "split": lambda: rewrite.split(NODE, A, Var("o", as_index(2)), Var("i", as_index(2))),
    "split of another loop": lambda: rewrite.split(NODE, Var("z", as_index(4)), Var("o", ONE), Var("i", as_index(4))),
    "flatten": lambda: rewrite.flatten(NODE, (A, B), Var("k", as_index(23))),
    "compute_at": lambda: rewrite.compute_at((NODE,), (B,)),
    "reorder": lambda: rewrite.reorder(NODE, (A,)),
    "unroll": lambda: rewrite.unroll(NODE, Var("n", of(Var("size", as_index(9))))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_law_forbids_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"iterations|loop"):
        REFUSED[name]()


def test_a_wrong_rewrite_would_be_seen() -> None:
    x = Buffer("x", "f64", as_index(24), "input", 0)
    y = RESULT
    node = Map((A, B), (Store(y, of(A) * 4 + of(B), Load(x, of(A) * 4 + of(B))),), Origin())
    wrong = Map((A, B), (Store(y, of(A) * 4 + of(B), Load(x, of(B) * 6 + of(A))),), Origin())
    assert not Case(node, x, np.arange(24.0)).keeps(wrong)
