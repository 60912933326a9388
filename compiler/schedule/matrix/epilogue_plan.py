"""What tiles do as they finish the elements of a product or a convolution: the epilogue's part of its plan."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ...ir.buffers import Buffer
from ...ir.expr import Acc, Call, Const, Expr, Load
from ...ir.index import ONE, ZERO, Index, Indirect, Var, of
from ...ir.lanes import depends
from ...ir.nodes import Store
from ...ir.plans.matrix import Added, EpiloguePlan, Rows
from ...ir.rewrite.epilogues import Epilogue
from ..loops.prefetch import prefetches


def epilogue_plan(
    epilogue: Epilogue, in_registers: bool, joined: bool = False, own: Collection[Buffer] = ()
) -> EpiloguePlan:
    """How an epilogue runs.

    in_registers: tiles hold plain sums of float32, so that they can add for themselves. joined: sums of several columns
    are finished together. own: buffers that are local to the kernel.
    """
    stores, m, column = epilogue.stores, epilogue.m, epilogue.column
    adds = added(stores, m, column, own) if in_registers and not joined else None
    results = _results(stores, m, column, own) if in_registers and adds is None else None
    fetched = prefetches(column, [s.value for s in stores], (epilogue.z, m))
    return EpiloguePlan(adds, results, fetched)


def added(stores: Sequence[Store], m: Var, column: Var, own: Collection[Buffer] = ()) -> Added | None:
    """What the stores add to the sums; None when they do anything else.

    `y[m*N + n] = add(add(acc, b[n]), x[m*N + n])` adds b, whose rows lie 0 apart, and x, whose rows lie N apart; with
    `maximum(.., 0)` around the sum `low` is 0. What is stored may be local to the kernel, what is read not.
    """
    if len(stores) != 1:
        return None
    value, high = _bound(stores[0].value, "minimum", math.inf)
    value, low = _bound(value, "maximum", -math.inf)
    terms = _terms(value)
    places = [(stores[0].buffer, stores[0].index), *((e.buffer, e.index) for e in terms or ())]
    if terms is None or any(b.dtype != "f32" for b, _ in places) or any(b in own for b, _ in places[1:]):
        return None
    steps = [_row_step(index, m, column) for _, index in places]
    rows = [Rows(buffer, index, step) for (buffer, index), step in zip(places, steps, strict=True) if step is not None]
    biases = [step == ZERO for step in steps[1:]]
    if None in steps or biases not in ([], [True], [False], [True, False]):
        return None
    out, *read = rows
    bias = read[0] if biases[:1] == [True] else None
    residual = read[-1] if biases[-1:] == [False] else None
    return Added(out, bias, residual, low, high)


def _results(stores: Sequence[Store], m: Var, column: Var, own: Collection[Buffer]) -> Rows | None:
    """The rows in memory that tiles fetch before they write results there; None: there are none.

    `y[m*N + n] = gelu(acc)` gives y from m*N + n on, N apart.
    """
    for store in stores:
        step = _row_step(store.index, m, column)
        if step is not None and step != ZERO and store.buffer not in own:
            return Rows(store.buffer, store.index, step)
    return None


def _bound(value: Expr, op: str, none: float) -> tuple[Expr, float]:
    """What a number bounds, and the number; the value itself and `none` when there is no such bound."""
    if isinstance(value, Call) and value.op == op and isinstance(value.args[1], Const):
        number = float(value.args[1].value)
        return (value.args[0], number) if math.isfinite(number) else (value, none)
    return value, none


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
