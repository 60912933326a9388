"""Primitives of where operands are read, and where they are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ..buffers import Buffer
from ..expr import Expr, Load, rewrite
from ..index import ZERO, Atom, Index, Var
from ..nodes import Map, Nest, Node, Origin, Reduce, Store
from .expressions import map_expressions

N = TypeVar("N", bound=Node)
NOTHING: Mapping[Buffer, Buffer] = {}


def cache_read(node: N, copies: Mapping[Load, Load]) -> N:
    """Loads of an operand become loads of a copy, which a kernel in front of the node makes in a layout of its own.

        y[c*8 + r] = x[r*9 + c]      ->      copy[c*8 + r] = x[r*9 + c];   y[c*8 + r] = copy[c*8 + r]

    Law: the copy holds at each new place what the operand holds at the old one, and nobody writes the operand between
    the copy and the node.
    """

    def leaf(e: Expr) -> Expr | None:
        return copies.get(e) if isinstance(e, Load) else None

    return map_expressions(node, lambda e: rewrite(e, leaf)) if copies else node


def compute_at(stages: Sequence[Map | Reduce], rows: tuple[Var, ...], local: Mapping[Buffer, Buffer] = NOTHING) -> Nest:
    """Nodes over the same rows run row by row, and what a stage makes for later ones holds a single row.

        mean[m] = sum n:N of x[m, n] / N                for m:
        y[m, n] = x[m, n] - mean[m]             ->          mean[0] = sum n:N of x[m, n] / N
                                                            y[m, n] = x[m, n] - mean[0]

    local: result of a stage -> the buffer of one row that takes its place; the row begins where `rows` are zero.

    Law: a stage reads of the results of others those of its own row alone, which a stage in front of it makes, and no
    node outside reads a local one.

    Raises:
        ValueError: a stage's loops do not begin with the rows.
    """
    if any(stage.dims[: len(rows)] != rows for stage in stages):
        raise ValueError(f"not all stages have the loops {', '.join(v.name for v in rows)} in front")
    origin = sum((stage.origin for stage in stages), Origin())
    return Nest(rows, (), origin, tuple(_of_row(s, rows, local) for s in stages), tuple(local.values()))


def _of_row(stage: Map | Reduce, rows: tuple[Var, ...], local: Mapping[Buffer, Buffer]) -> Map | Reduce:
    zeros: dict[Atom, Index] = dict.fromkeys(rows, ZERO)

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in local:
            return Load(local[e.buffer], e.index.substitute(zeros))
        return None

    changed = map_expressions(stage, lambda e: rewrite(e, leaf))
    stores = tuple(
        Store(local[s.buffer], s.index.substitute(zeros), s.value) if s.buffer in local else s for s in changed.stores
    )
    return replace(changed, stores=stores)
