"""From a place in a buffer back to the loops that wrote it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mycc.compiler.ir.expr import Const
from mycc.compiler.ir.index import Index, Size, Var, as_index, of, product
from mycc.compiler.ir.nodes import Store
from mycc.compiler.schedule.fusion.invert import digits, invert

from ..helpers.programs import flat, loops, temp

ONE = Const(1.0, "f32")
I, J = loops(i=3, j=12)  # noqa: E741
BATCH = of(Size("batch", 1, 64))


def store(index: Index, size: int | Index) -> Store:
    return Store(temp("t", size), index, ONE)


def test_row_major() -> None:
    x, y = loops(x=3, y=12)
    assert invert(store(flat(I, J), 36), (I, J), flat(x, y)) == {I: of(x), J: of(y)}


def test_permuted_and_symbolic() -> None:
    b, c = Var("b", BATCH), Var("c", as_index(5))
    x, y = Var("x", BATCH), Var("y", as_index(5))
    place = of(c) * BATCH + of(b)  # [5, batch], written in the other order of the loops
    assert invert(store(place, BATCH * 5), (b, c), of(y) * BATCH + of(x)) == {b: of(x), c: of(y)}


def test_one_flat_place_splits_into_digits() -> None:
    (k,) = loops(k=36)
    values = invert(store(flat(I, J), 36), (I, J), of(k))
    assert values == {I: of(k) // as_index(12), J: of(k) % as_index(12)}


@pytest.mark.parametrize(
    ("index", "size", "why"),
    [
        (of(I) * 13 + of(J), 39, "a hole behind each row"),
        (of(I) * 12 + of(J), 48, "rows are missing"),
        (of(I) * 12, 36, "a loop that the place does not hold"),
        (of(I) * 12 + of(J) + 1, 37, "an offset"),
        (of(I) * 12 + of(J) // as_index(2), 36, "not linear"),
        (of(I) * 12 + of(J) * 2, 36, "every second"),
    ],
)
def test_stores_that_do_not_fill_their_buffer_once(index: Index, size: int, why: str) -> None:
    assert digits(store(index, size), (I, J)) is None, why
    assert invert(store(index, size), (I, J), as_index(0)) is None, why


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=4).flatmap(
        lambda e: st.tuples(st.just(e), st.permutations(range(len(e))))
    )
)
def test_inverse_of_every_dense_order(case: tuple[list[int], list[int]]) -> None:
    extents, order = case
    dims = [Var(f"v{i}", as_index(n)) for i, n in enumerate(extents)]
    place = flat(*(dims[d] for d in order))
    size = product(extents)
    for point in itertools.product(*(range(n) for n in extents)):
        at = place.substitute({v: as_index(p) for v, p in zip(dims, point, strict=True)})
        assert invert(store(place, size), dims, at) == {v: as_index(p) for v, p in zip(dims, point, strict=True)}
