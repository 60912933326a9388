"""What epilogues of products tell of themselves.

Those that only add a bias and a residual, and bound the sum, tiles do in registers. Of others the tiles fetch where the
results go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.expr import Acc, Call, Const, Expr, Load
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    Indirect,
    Var,
    of,
)
from ...ir.lanes import depends
from ...ir.nodes import Store
from .emit import Emitter
from .scope import Scope


def added(scope: Scope, stores: Sequence[Store], m: Var, column: Var) -> tuple[str, ...]:
    """The fields of mycc::Added for the elements from (m, column) on; () when the stores do anything else.

    `y[m*N + n] = add(add(acc, b[n]), x[m*N + n])` gives `y + m*N + n, b + n, x + m*N + n, N, N`; with `maximum(.., 0)`
    around the sum `true, 0.0f, __builtin_inff()` follow. What is stored may be local to the kernel, what is read not.
    """
    if len(stores) != 1:
        return ()
    value, high = _bound(stores[0].value, "minimum", math.inf)
    value, low = _bound(value, "maximum", -math.inf)
    terms = _terms(value)
    places = [(stores[0].buffer, stores[0].index), *((e.buffer, e.index) for e in terms or ())]
    if terms is None or any(b.dtype != "f32" for b, _ in places) or any(b in scope.locals for b, _ in places[1:]):
        return ()
    steps = [_row_step(index, m, column) for _, index in places]
    biases = [step == ZERO for step in steps[1:]]
    if None in steps or biases not in ([], [True], [False], [True, False]):
        return ()
    text = Emitter(scope, column)
    pointers = [f"{scope.buffer(buffer)} + {text.index(index)}" for buffer, index in places]
    strides = [text.index(step) for step in steps if step is not None]
    bias = pointers[1] if biases[:1] == [True] else "nullptr"
    residual = (pointers[-1], strides[-1]) if biases[-1:] == [False] else ("nullptr", "0")
    bounds = () if math.isinf(low) and math.isinf(high) else ("true", _literal(low), _literal(high))
    return (pointers[0], bias, residual[0], strides[0], residual[1], *bounds)


def results(scope: Scope, stores: Sequence[Store], m: Var, column: Var) -> tuple[str, str] | None:
    """Where the first results from (m, column) on go, and the step to the next row; None: no such rows in memory.

    `y[m*N + n] = gelu(acc)` gives `y + m*N + n` and `N`.
    """
    text = Emitter(scope, column)
    for store in stores:
        step = _row_step(store.index, m, column)
        if step is not None and step != ZERO and store.buffer not in scope.locals:
            return f"{scope.buffer(store.buffer)} + {text.index(store.index)}", text.index(step)
    return None


def _bound(value: Expr, op: str, none: float) -> tuple[Expr, float]:
    """What a number bounds, and the number; the value itself and `none` when there is no such bound."""
    if isinstance(value, Call) and value.op == op and isinstance(value.args[1], Const):
        number = float(value.args[1].value)
        return (value.args[0], number) if math.isfinite(number) else (value, none)
    return value, none


def _literal(number: float) -> str:
    return f"{number!r}f" if math.isfinite(number) else f"{'-' if number < 0 else ''}__builtin_inff()"


def _terms(value: Expr) -> tuple[Load, ...] | None:
    """What is added to the sum, in order; None when more is done to it."""
    if isinstance(value, Acc):
        return () if value.dtype == "f32" else None
    if not isinstance(value, Call) or value.op != "add" or not isinstance(value.args[1], Load):
        return None
    before = _terms(value.args[0])
    return None if before is None else (*before, value.args[1])


def _row_step(index: Index, m: Var, column: Var) -> Index | None:
    """How far apart the rows lie in memory; None when that differs or the columns of a row are not dense."""
    if any(isinstance(a, Indirect) for a in index.atoms()) or depends(index - of(column), column):
        return None
    start = index.substitute({m: ZERO})
    step = index.substitute({m: ONE}) - start
    return step if index == start + step * of(m) else None
