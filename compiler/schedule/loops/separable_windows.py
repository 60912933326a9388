"""Separable windows: a window of two dimensions is reduced over its rows first, and then along the resulting row.

    for h, w:  y[h, w] = max_{k, l} x[2*h + k, 2*w + l]      ->      for h:  row[c] = max_k x[2*h + k, c]
                                                                             y[h, w] = max_l row[2*w + l]

The first reduction reads contiguous memory, and overlapping windows share its results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.conditions import bound, conditions, conjunction, unclamped
from ...ir.dtypes import DTYPES
from ...ir.expr import (
    Acc,
    Call,
    Const,
    Expr,
    Load,
    substitute,
)
from ...ir.index import (
    ONE,
    ZERO,
    Atom,
    Index,
    Var,
    exact_div,
    maximum,
    minimum,
    of,
    product,
    row_major,
)
from ...ir.nodes import Nest, Reduce, Reduction, Store
from ...machine.cpu_loops import TASKS, WINDOWS
from ..graph import NodeGraph
from .collapse import collapse
from .sliding_window import find_sliding_windows


@dataclass(frozen=True)
class _Window:
    """What is reduced along a row: `tap` of a window that starts at place - tap, which moves with the loop `lane`."""

    tap: Var
    lane: Var
    place: Index
    along: tuple[Expr, ...]  # conditions on the place
    down: Expr  # what is reduced, whatever the place
    columns: Index


def split_windows(graph: NodeGraph) -> None:
    """Makes nests of the reductions over windows that take many elements."""
    for node in list(graph.nodes):
        if isinstance(node, Reduce) and find_sliding_windows(collapse(node)) is None:
            nest = in_two_reductions(node)
            if nest is not None:
                graph.replace(node, nest)


def in_two_reductions(node: Reduce) -> Nest | None:
    """The nest of the two reductions, or None where the reduction is not one over windows, or too small."""
    window = _window(node)
    if window is None:
        return None
    (reduction,) = node.reductions
    at = node.dims.index(window.lane)
    inner = node.dims[at + 1 :]
    row = window.columns * product(v.extent for v in inner)
    rows = _rows(node.dims[:at], row * DTYPES[reduction.value.dtype].size)
    if not rows:
        return None
    lines = node.dims[len(rows) : at]
    size = product(v.extent for v in lines) * row
    local = Buffer(f"{node.stores[0].buffer.name}_row", reduction.value.dtype, size, "local")

    def at_column(c: Index) -> Index:
        return row_major(inner, row_major(lines) * window.columns + c)

    column = Var(f"{window.lane.name}_column", window.columns)
    acc = Acc(f"{reduction.acc.name}_row", reduction.acc.dtype)
    down = substitute(window.down, {window.tap: of(column) - window.place + of(window.tap)})
    if {window.tap, window.lane} & down.vars():
        return None
    first = Reduce(
        (*rows, *lines, column, *inner),
        (Store(local, at_column(of(column)), acc),),
        node.origin,
        tuple(v for v in node.rdims if v is not window.tap),
        (Reduction(acc, reduction.op, down),),
    )
    place = minimum(maximum(window.place, ZERO), window.columns - 1)
    value: Expr = Load(local, at_column(place))
    inside = conjunction(window.along)
    if inside is not None:
        value = Call("where", (inside, value, _outside(reduction.value)), value.dtype)
    second = replace(node, rdims=(window.tap,), reductions=(replace(reduction, value=value),))
    return Nest(rows, (), node.origin, (first, second), (local,))


def _rows(outer: Sequence[Var], line: Index) -> tuple[Var, ...]:
    """The loops of the nest: all but those whose lines, of `line` bytes, are reduced down together; () where one is too
    long. A line that is read right after it was written is waited for.
    """
    size = line.constant
    count = len(outer)
    if size is None or size > WINDOWS.row_bytes:
        return ()
    while count > 1:
        size *= outer[count - 1].extent.constant or WINDOWS.row_bytes
        kept = math.prod(v.extent.constant or 1 for v in outer[: count - 1])
        if size > WINDOWS.row_bytes or kept < TASKS.rows:
            break
        count -= 1
    return tuple(outer[:count])


def _window(node: Reduce) -> _Window | None:
    if len(node.reductions) != 1 or len(node.rdims) < 2 or node.reductions[0].op not in ("max", "min", "sum"):
        return None
    (reduction,) = node.reductions
    exact = reduction.op != "sum" or DTYPES[reduction.value.dtype].compute == reduction.value.dtype
    if not exact:
        return None
    tap = node.rdims[-1]
    parts, value = _choice(reduction.value, reduction.op)
    along = [p for p in parts if tap in p.vars()]
    bounds = [b for b in map(bound, along) if b is not None]
    places = {b.place for b in bounds} or _places(value, tap, node.dims)
    if len(bounds) < len(along) or len(places) != 1:
        return None
    (place,) = places
    lanes = [v for v in node.dims if v in place.vars()]
    if place.coefficient(tap) != ONE or len(lanes) != 1 or place.vars() != {tap, lanes[0]}:
        return None
    (lane,) = lanes
    ends: dict[Atom, Index] = {lane: lane.extent - 1, tap: tap.extent - 1}
    limits = [b.limit for b in bounds if b.limit is not None and not b.limit.vars()]
    columns = limits[0] if limits else place.substitute(ends) + 1
    if not _worth(node, tap, columns, lane):
        return None
    rest = conjunction([p for p in parts if tap not in p.vars()])
    if rest is not None and lane in rest.vars():
        return None
    down = unclamped(value, set(bounds))
    if rest is not None:
        down = Call("where", (rest, down, _outside(reduction.value)), down.dtype)
    return _Window(tap, lane, place, tuple(along), down, columns)


def _worth(node: Reduce, tap: Var, columns: Index, lane: Var) -> bool:
    """Whether two reductions take fewer vectors, loaded or stored, for one of the result. Where the lanes run along the
    row, windows that lie some elements apart are picked out of several vectors, half of them read before. Where they do
    not, one reduction has two loops whose ends depend on the place."""
    count, along, size = columns.constant, tap.extent.constant, lane.extent.constant
    down = product(v.extent for v in node.rdims if v is not tap).constant
    if count is None or along is None or size is None or down is None:
        return False
    step = max(1, round(count / max(size, 1)))
    apart, ends = ((1 + step) / 2, 1.0) if node.dims[-1] is lane else (1.0, 1.5)
    return down * along * apart * ends > step * (down + 2) + along * apart and step <= along


def _choice(e: Expr, op: str) -> tuple[list[Expr], Expr]:
    """The conditions of a value that is left out where they do not hold, and the value; none of any other one."""
    parts: list[Expr] = []
    outside = _outside(e)
    while isinstance(e, Call) and e.op == "where" and e.args[2] == outside and isinstance(outside, Const):
        if op == "sum" and outside.value != 0:
            break
        parts += conditions(e.args[0])
        e = e.args[1]
    return parts, e


def _outside(e: Expr) -> Expr:
    return e.args[2] if isinstance(e, Call) and e.op == "where" else e


def _places(value: Expr, tap: Var, dims: Sequence[Var]) -> set[Index]:
    """Where the loads of a value without conditions lie along the row."""
    found = set()
    for load in value.loads:
        stride = load.index.coefficient(tap)
        if stride is None:
            return set()
        for v in dims:
            apart = load.index.coefficient(v)
            step = exact_div(apart, stride) if apart is not None and stride.terms else None
            if step is not None and step.constant and step.constant <= (tap.extent.constant or 0):
                found.add(of(v) * step + of(tap))
    return found
