"""The text of what epilogues of products tell of themselves: what tiles add, and where results go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...ir.index import Var
from ...ir.plans.loop import Prefetch
from ...ir.plans.matrix import Added, Rows
from .emit import Emitter
from .lift import Lifted
from .scope import Scope


def added(adds: Added, scope: Scope, column: Var, lifted: Lifted) -> tuple[str, ...]:
    """The fields of mycc::Added for the elements from (m, column) on.

    `y[m*N + n] = add(add(acc, b[n]), x[m*N + n])` gives `y + m*N + n, b + n, x + m*N + n, N, N`; with `maximum(.., 0)`
    around the sum `true, 0.0f, __builtin_inff()` follow.
    """
    text = Emitter(scope, column)
    rows = [r for r in (adds.out, adds.bias, adds.residual) if r is not None]
    pointers = {r: f"{scope.buffer(r.buffer)} + {text.index(lifted.index(r.index))}" for r in rows}
    steps = {r: text.index(lifted.index(r.step)) for r in rows}
    bias = pointers[adds.bias] if adds.bias is not None else "nullptr"
    residual = (pointers[adds.residual], steps[adds.residual]) if adds.residual is not None else ("nullptr", "0")
    bounded = math.isfinite(adds.low) or math.isfinite(adds.high)
    bounds = ("true", _literal(adds.low), _literal(adds.high)) if bounded else ()
    return (pointers[adds.out], bias, residual[0], steps[adds.out], residual[1], *bounds)


def results(rows: Rows, scope: Scope, column: Var, lifted: Lifted) -> tuple[str, str]:
    """Where the first results from (m, column) on go, and the step to the next row.

    `y[m*N + n] = gelu(acc)` gives `y + m*N + n` and `N`.
    """
    text = Emitter(scope, column)
    index, step = lifted.index(rows.index), lifted.index(rows.step)
    return f"{scope.buffer(rows.buffer)} + {text.index(index)}", text.index(step)


def lifted_prefetches(found: Sequence[Prefetch], lifted: Lifted) -> tuple[Prefetch, ...]:
    """The prefetches of an epilogue with arguments for numbers."""
    return tuple(replace(p, index=lifted.index(p.index)) for p in found)


def _literal(number: float) -> str:
    return f"{number!r}f" if math.isfinite(number) else f"{'-' if number < 0 else ''}__builtin_inff()"
