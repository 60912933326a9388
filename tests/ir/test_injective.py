"""Which indices name another element at each turn: a proof holds for all sizes, and is tried for a few."""

from __future__ import annotations

import itertools

import pytest
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Load
from mycc.compiler.ir.index import Index, Indirect, Size, Var, as_index, of
from mycc.compiler.ir.injective import injective

N = Size("n", 0, None)
I, J, K = Var("i", of(N)), Var("j", as_index(4)), Var("k", as_index(12))  # noqa: E741
i, j, k, n = of(I), of(J), of(K), of(N)
NAMED = of(Indirect(Load(Buffer("b", "i64", n, "input", 0), i), as_index(9)))
FIXED = of(Indirect(Load(Buffer("b", "i64", n, "input", 0), as_index(0)), as_index(9)))

INDICES: dict[str, tuple[Index, tuple[Var, ...], bool]] = {
    "row major": (i * 4 + j, (I, J), True),
    "column major": (j * n + i, (I, J), True),
    "with gaps": (i * 9 + j * 2 + 5, (I, J), True),
    "backwards": (i * 4 - j + 3, (I, J), True),
    "overlapping rows": (i * 3 + j, (I, J), False),
    "a loop is missing": (i, (I, J), False),
    "a loop of one turn is missing": (i, (I, Var("o", as_index(1))), True),
    "a loop without turns": (as_index(0), (Var("o", as_index(0)),), True),
    "digits of a loop": ((k // 4) * 8 + k % 4, (K,), True),
    "digits that meet": ((k // 4) * 3 + k % 4, (K,), False),
    "digits of the same loop that are left out": (k % 4, (K,), False),
    "three digits": ((k // 6) + ((k // 2) % 3) * 2 + (k % 2) * 6, (K,), True),
    "data": (NAMED * 4 + j, (I, J), False),
    "one place of data": (FIXED * 4 + j, (J,), True),
    "one place of data, over and over": (FIXED * 4 + j, (I, J), False),
    "squares": (i * i, (I,), False),
}


@pytest.mark.parametrize("name", INDICES)
def test_injective(name: str) -> None:
    index, loops, wanted = INDICES[name]
    assert injective(index, loops) == wanted
    if wanted and not any(isinstance(a, Indirect) for a in index.atoms()):
        _try(index, loops, {"n": 5})


def _try(index: Index, loops: tuple[Var, ...], sizes: dict[str, int]) -> None:
    turns = list(itertools.product(*(range(v.extent.evaluate(sizes)) for v in loops)))
    places = {
        index.substitute({v: as_index(t) for v, t in zip(loops, turn, strict=True)}).evaluate(sizes) for turn in turns
    }
    assert len(places) == len(turns)
