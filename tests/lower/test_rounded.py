"""Sizes that a model makes of fractions are what Python makes of them, for every size in range."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import sympy
from mycc.compiler.ir.index import Size
from mycc.compiler.lower.core.fraction_sizes import TRIED, is_rounded
from mycc.compiler.lower.core.shapes import Sizes
from mycc.runtime.errors import CompileError
from torch.utils._sympy.functions import (
    CeilToInt,
    FloatTrueDiv,
    FloorToInt,
    IntTrueDiv,
    RoundToInt,
    ToFloat,
    TruncToInt,
)

N, M = sympy.symbols("s0 s1", integer=True, positive=True)
ROUNDINGS: dict[type, Callable[[float], int]] = {
    TruncToInt: int, FloorToInt: math.floor, CeilToInt: math.ceil, RoundToInt: round
}  # fmt: skip
#: what is rounded, as torch says it and as Python computes it
FRACTIONS: dict[str, tuple[sympy.Expr, Callable[[int], float]]] = {
    **{f"n*{c}": (c * ToFloat(N), lambda n, c=c: n * c) for c in (0.5, 1.5, 0.6, 1 / 3, 0.7071067811865476)},
    **{f"n/{c}": (IntTrueDiv(N, c), lambda n, c=c: n / c) for c in (2, 3, 7)},
    "n*0.5+0.5": (0.5 * ToFloat(N) + 0.5, lambda n: n * 0.5 + 0.5),
    "(n-5)*1.25": (1.25 * ToFloat(N) - 6.25, lambda n: n * 1.25 - 6.25),
    "n*0.5/0.3": (FloatTrueDiv(0.5 * ToFloat(N), 0.3), lambda n: n * 0.5 / 0.3),
    "n/3*0.5": (0.5 * IntTrueDiv(N, 3), lambda n: n / 3 * 0.5),
    "(n+3)*0.2": (0.2 * ToFloat(N + 3), lambda n: (n + 3) * 0.2),
}  # fmt: skip


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=lambda r: r.__name__)
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_every_size(fraction: str, rounding: type) -> None:
    formula, value = FRACTIONS[fraction]
    index = Sizes({N: Size("n", 1, 3000)}).index(rounding(formula) + 1)
    for n in range(1, 3001):
        assert index.evaluate({"n": n}) == ROUNDINGS[rounding](value(n)) + 1, n


def test_two_sizes() -> None:
    index = Sizes({N: Size("n", 1, 40), M: Size("m", 1, 40)}).index(TruncToInt(0.6 * ToFloat(N) + 0.25 * ToFloat(M)))
    for n in range(1, 41):
        assert [index.evaluate({"n": n, "m": m}) for m in range(1, 41)] == [
            int(n * 0.6 + m * 0.25) for m in range(1, 41)
        ]


@pytest.mark.parametrize("c", [0.5, 0.6, 1.1, 1 / 3])
def test_sizes_without_a_bound(c: float) -> None:
    """Proved, where there are too many to be tried."""
    index = Sizes({N: Size("n", 1, 2**31 - 1)}).index(TruncToInt(c * ToFloat(N)))
    for n in (*range(1, 100), *range(10**9, 10**9 + 100), *range(2**31 - 100, 2**31)):
        assert index.evaluate({"n": n}) == int(n * c), n


def test_a_fraction_that_floats_miss_is_refused() -> None:
    """int(90 * 0.7) is 62; below 90 it is a formula."""
    formula = TruncToInt(0.7 * ToFloat(N))
    index = Sizes({N: Size("n", 1, 89)}).index(formula)
    assert [index.evaluate({"n": n}) for n in range(1, 90)] == [int(n * 0.7) for n in range(1, 90)]
    with pytest.raises(CompileError, match=r"TruncToInt\(0.7\*ToFloat\(n\)\) .*for n = 90 Python's numbers .* 62"):
        Sizes({N: Size("n", 1, 90)}).index(formula)
    with pytest.raises(CompileError, match=f"more than {TRIED} values"):
        Sizes({N: Size("n", 1, 2**31 - 1)}).index(formula)


def test_other_functions_are_refused() -> None:
    from torch.utils._sympy.functions import OpaqueUnaryFn_sqrt

    formula = FloorToInt(OpaqueUnaryFn_sqrt(ToFloat(N)))
    assert is_rounded(formula + 1)
    assert not is_rounded(N // 2 + 1)
    with pytest.raises(CompileError, match="only sums, products and quotients"):
        Sizes({N: Size("n", 1, 90)}).index(formula)
