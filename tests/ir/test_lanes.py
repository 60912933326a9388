"""How an index moves along the lanes of a vector."""

from __future__ import annotations

import pytest
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Load
from mycc.compiler.ir.index import Index, Indirect, Size, Var, as_index, minimum, of
from mycc.compiler.ir.lanes import lane_stride

ROW, LANE = Var("row", as_index(100)), Var("lane", as_index(768))
r, v, s = of(ROW), of(LANE), of(Size("seq", 1, 512))
IDS = Buffer("ids", "i64", as_index(768), "input", 0)


def per(a: Index, d: int) -> Index:
    return a // as_index(d)


def rest(a: Index, d: int) -> Index:
    return a % as_index(d)


CASES: dict[str, tuple[Index, Index | None]] = {
    "does not move": (r * 768 + 3, as_index(0)),
    "by one": (r * 768 + v, as_index(1)),
    "by a number": (v * 12 + r, as_index(12)),
    "by a size": (v * s + r, s),
    "backwards": (r * 768 - v, as_index(-1)),
    "quotient by a multiple of 16": (per(v, 64), as_index(0)),
    "remainder by a multiple of 16": (rest(v, 64) * 5, as_index(5)),
    "with aligned rows": (rest(r * 16 + v, 64), as_index(1)),
    "with other rows": (rest(r * 5 + v, 64), None),
    "quotient by another": (per(v, 12), None),
    "remainder by another": (rest(v, 12), None),
    "quotient by a size": (v // s, None),
    "quotient of a strided lane": (per(v * 3, 64), None),
    "clamped": (minimum(v + 3, 700), None),
    "squared": (v * v, None),
    "read from memory along the lane": (of(Indirect(Load(IDS, v), as_index(9))), None),
    "read from memory elsewhere": (of(Indirect(Load(IDS, r), as_index(9))) * 768 + v, as_index(1)),
}


@pytest.mark.parametrize("case", CASES)
def test_stride(case: str) -> None:
    index, expected = CASES[case]
    assert lane_stride(index, LANE) == expected


@pytest.mark.parametrize("case", [c for c, (_, e) in CASES.items() if e is not None and "memory" not in c])
def test_stride_by_values(case: str) -> None:
    """The index at lane l of a vector that starts at a multiple of 16 is the first one's plus l strides."""
    index, expected = CASES[case]
    assert expected is not None
    for row in (0, 3):
        for start in (0, 16, 48, 752):
            for lane in range(16):
                at = index.substitute({ROW: as_index(row), LANE: as_index(start + lane)})
                first = index.substitute({ROW: as_index(row), LANE: as_index(start)})
                assert at == first + expected * lane
