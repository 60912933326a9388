"""Column blocking: stages with outer-loop-vectorised reductions run on a block of columns, which stays in the cache.

for n, c:C:                                        for n, b:C/B:
  s = sum_k f(x[n, k, c])                 ->         s[:] = sum_k f(x[n, k, b*B + :])                :B
  y[n, :, c] = g(x[n, :, c], s)                      y[n, k, b*B + :] = g(x[n, k, b*B + :], s[:])    k, :B

The columns are the last loops over the results that every access is linear in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.index import (
    ZERO,
    Atom,
    Index,
    Var,
    as_index,
    of,
    product,
)
from ...ir.nodes import Map, Reduce
from ...ir.rewrite import with_loops
from ...ir.rewrite.loops import indices_of, walks_as_one
from ...machine.cpu_loops import COLUMN_LOOPS, TASKS
from .vector_axis import vector_loop

Stages = tuple[Map | Reduce, ...]


@dataclass(frozen=True)
class Most:
    """Limits of a block: columns, elements, and elements of one that need not be cut any more.

    strips: if there are any, a block has as many columns as the first of them that divides all.
    """

    columns: int
    elements: int
    uncut: int = 0
    strips: tuple[int, ...] = ()


#: blocks whose stages run one after the other: no more columns than accumulators have room for
ONE_BY_ONE = Most(COLUMN_LOOPS.most, COLUMN_LOOPS.elements, COLUMN_LOOPS.uncut)
#: pipelined ones; what is kept of deep columns lies in the third cache
PIPELINED = Most(max(COLUMN_LOOPS.strips), COLUMN_LOOPS.pipelined, strips=COLUMN_LOOPS.strips)


def in_blocks(
    stages: Sequence[Map | Reduce], rows: tuple[Var, ...], most: Most
) -> tuple[Stages, tuple[Var, ...]] | None:
    """The stages over blocks of columns, and the rows that are left; None where blocks do not fit.

    All loops of `rows` are kept by every stage, in front.
    """
    found = None
    merged: tuple[Stages, tuple[Var, ...]] | None = (tuple(stages), rows)
    while merged is not None:
        found = _in_blocks(*merged, most) or found
        merged = last_as_one(*merged)
    return found


def _in_blocks(stages: Stages, rows: tuple[Var, ...], limits: Most) -> tuple[Stages, tuple[Var, ...]] | None:
    """The last row as blocks."""
    *outer, column = rows
    count, size = product(v.extent for v in outer).constant, column.extent.constant
    depth = _depth(stages)
    if not size or depth is None:  # of no columns there is no block
        return None
    most = size if count is None else count * size // TASKS.blocks
    width = _width(size, depth, replace(limits, columns=min(most, limits.columns)))
    if width is None:
        return None
    block = Var(f"{column.name}_block", as_index(size // width))
    within = Var(column.name, as_index(width))
    split = width < size
    place = of(block) * width + of(within) if split else of(within)
    kept = (*outer, block) if split else tuple(outer)
    blocked = tuple(with_loops(s, {column: place}, (*kept, *s.dims[len(rows) :], within)) for s in stages)
    if not kept or any(isinstance(s, Reduce) and vector_loop(s) is not within for s in blocked):
        return None
    return blocked, kept


def last_as_one(stages: Stages, rows: tuple[Var, ...]) -> tuple[Stages, tuple[Var, ...]] | None:
    """The last two rows as one loop, when all accesses walk through them like one."""
    if len(rows) < 2 or not all(walks_as_one(i, rows[-2], rows[-1]) for s in stages for i in indices_of(s)):
        return None
    *outer, a, b = rows
    merged = Var(b.name, a.extent * b.extent)
    places: dict[Atom, Index] = {a: ZERO, b: of(merged)}
    kept = (*outer, merged)
    return tuple(with_loops(s, places, (*kept, *s.dims[len(rows) :])) for s in stages), kept


def _depth(stages: Stages) -> int | None:
    """How many elements of a column are reduced at most."""
    depths = [product(v.extent for v in s.rdims).constant for s in stages if isinstance(s, Reduce)]
    return max((d for d in depths if d is not None), default=None) if None not in depths else None


def _width(columns: int, depth: int, most: Most) -> int | None:
    """Columns of a block: a divisor of them that makes whole vectors, or all."""
    fits = min(most.columns, most.elements // max(depth, 1))
    if most.strips:
        deep = depth * most.strips[0] > most.elements
        return next((n for n in most.strips if n <= fits and columns % n == 0 and not deep), None)
    if columns <= most.columns and columns * depth <= most.elements:
        return columns
    found = next(
        (
            n
            for n in range(fits - fits % COLUMN_LOOPS.step, COLUMN_LOOPS.least - 1, -COLUMN_LOOPS.step)
            if columns % n == 0
        ),
        None,
    )
    return columns if found is None and columns <= most.columns and columns * depth <= most.uncut else found
