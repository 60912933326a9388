"""Memory that is fetched before it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..ir.expr import Expr, Load
from ..ir.index import ONE, Atom, Index, Indirect, Var
from ..ir.lanes import depends, lane_stride
from .emit import Emitter
from .scope import Scope

NOWHERE: Mapping[Atom, Index] = {}


def fetches(
    scope: Scope, column: Var, expressions: Iterable[Expr], rows: Sequence[Var],
    moved: Mapping[Atom, Index] = NOWHERE, far: bool = False,
) -> tuple[str, ...]:  # fmt: skip
    """Statements that fetch what neighbours along `column` read in `rows` and nobody else does; `moved`: elsewhere.

    far: it is no stream, and the hardware does not find it.
    """
    far_or_near = "far" if far else "near"
    return tuple(f"fetch_{far_or_near}({p});" for p in fetched_places(scope, column, expressions, rows, moved))


def fetched_places(
    scope: Scope, column: Var, expressions: Iterable[Expr], rows: Sequence[Var], moved: Mapping[Atom, Index]
) -> tuple[str, ...]:
    """The addresses of what `fetches` fetches."""
    text = Emitter(scope, column)
    places = {(e.buffer, e.index): None for value in expressions for e in value.walk() if isinstance(e, Load)}
    return tuple(
        f"{scope.buffer(buffer)} + {text.index(index.substitute(dict(moved)))}"
        for buffer, index in places
        if buffer not in scope.locals and lane_stride(index, column) == ONE and any(depends(index, v) for v in rows)
        if not any(isinstance(a, Indirect) for a in index.atoms())
    )
