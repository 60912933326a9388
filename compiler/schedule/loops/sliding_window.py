"""Sliding window: one pass over memory reduces overlapping windows, and each row is added to all windows that hold it.

    for r, q:  y[r, q] = max_{k, l} x[r + k, q + l]   ->   for at:  row[q] = max_l x[at, q + l]
                                                                    y[r, q] = max(y[r, q], row[q]), r = at - 2 .. at

Registers hold the partial results of open windows, and no row is reduced twice. Where every tap has its own weight, a
row is loaded once and added to each window with that window's weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.conditions import WITH_NEUTRAL, Bound, bound, conditions, conjunction, is_neutral, neutral, unclamped
from ...ir.dtypes import DTYPES
from ...ir.expr import (
    Call,
    Const,
    Expr,
    IndexValue,
    Load,
    rewrite,
)
from ...ir.index import (
    ONE,
    ZERO,
    Atom,
    Index,
    Indirect,
    Var,
    exact_div,
    of,
)
from ...ir.nodes import Reduce
from ...ir.plans.loop import SlidingWindows
from ...machine.cpu_loops import WINDOWS

MOST_APART = 8  # lanes of neighbouring windows in memory


def find_sliding_windows(node: Reduce) -> SlidingWindows | None:
    """The reduction as one over windows that overlap; None for any other, or where too much of it is open."""
    if len(node.reductions) != 1 or node.reductions[0].op not in WITH_NEUTRAL or len(node.dims) < 2:
        return None
    lanes = node.dims[-1]
    extent = lanes.extent.constant
    if extent is None or extent < WINDOWS.weighted_lanes or any(s.index.coefficient(lanes) != ONE for s in node.stores):
        return None
    parts, value = _choice(node)
    if any(isinstance(a, Indirect) for load in value.loads for a in load.index.atoms()):
        return None
    for row in reversed(node.dims[:-1]):
        for tap in node.rdims:
            found = _rolled(node, row, tap, parts, value)
            if found is not None:
                return found
    return None


def _choice(node: Reduce) -> tuple[list[Expr], Expr]:
    """The conditions under which a value counts, and the value."""
    (reduction,) = node.reductions
    value, parts = reduction.value, list[Expr]()
    while isinstance(value, Call) and value.op == "where":
        if not is_neutral(value.args[2], reduction.op):
            break
        parts += conditions(value.args[0])
        value = value.args[1]
    return parts, value


def _rolled(node: Reduce, row: Var, tap: Var, parts: Sequence[Expr], value: Expr) -> SlidingWindows | None:
    own = [p for p in parts if tap in p.vars()]
    bounds = [b for b in map(bound, own) if b is not None]
    if len(bounds) < len(own) or len({b.place for b in bounds}) > 1:
        return None
    place = bounds[0].place if bounds else _place(value, row, tap)
    if place is None or place.vars() != {row, tap} or place.coefficient(tap) != ONE:
        return None
    factor, taps = place.coefficient(row), tap.extent.constant
    step = factor.constant if factor is not None else None
    first = place.substitute({row: ZERO, tap: ZERO}).constant
    if step is None or taps is None or first is None or not 1 <= step < taps:
        return None
    limits = {b.limit for b in bounds if b.limit is not None}
    if len(limits) > 1 or any(limit.vars() for limit in limits):
        return None
    at = Var(f"{row.name}_at", next(iter(limits)) if limits else row.extent * step + taps)
    rest = [p for p in parts if p not in own]
    moved: dict[Atom, Index] = {tap: of(at) - place + of(tap)}
    plain = _moved(unclamped(value, set(bounds)), row, moved)
    if row in plain.vars() or any({row, tap} & p.vars() for p in rest):
        return None
    weighted = tap if tap in plain.vars() else None
    if weighted is None and (node.dims[-1].extent.constant or 0) < WINDOWS.lanes:
        return None
    windows = SlidingWindows(
        row, taps, step, -first, next(iter(limits), None), at, node.dims[-1], node, node, (0, 0), weighted
    )  # fmt: skip
    if windows.open > (WINDOWS.weighted_open if weighted else WINDOWS.open):
        return None
    if weighted and not (node.reductions[0].op == "sum" and _is_weighted(plain, weighted)):
        return None
    return _with_lanes(node, row, tap, windows, rest, plain)


def _is_weighted(value: Expr, tap: Var) -> bool:
    """Whether it is a product of floating-point numbers of which one factor alone depends on the tap."""
    dtype = DTYPES[value.dtype]
    product = isinstance(value, Call) and value.op == "mul" and dtype.kind == "f" and dtype.compute == value.dtype
    return product and sum(tap in a.vars() for a in value.children) == 1


def _moved(value: Expr, row: Var, moved: dict[Atom, Index]) -> Expr:
    """The value of a place instead of that of a tap of a window; a weight of the tap stays one."""

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, IndexValue):
            return IndexValue(e.index.substitute(moved))
        return Load(e.buffer, e.index.substitute(moved)) if isinstance(e, Load) and row in e.index.vars() else None

    return rewrite(value, leaf)


def _place(value: Expr, row: Var, tap: Var) -> Index | None:
    """Where windows without conditions lie: row * step + tap."""
    steps = set()
    for load in value.loads:
        if row not in load.index.vars():
            continue  # a weight
        apart, near = load.index.coefficient(row), load.index.coefficient(tap)
        step = exact_div(apart, near) if apart is not None and near is not None and near.terms else None
        steps.add(step.constant if step is not None else None)
    step_of_all = next(iter(steps)) if len(steps) == 1 else None
    return of(row) * step_of_all + of(tap) if step_of_all else None


def _with_lanes(
    node: Reduce, row: Var, tap: Var, windows: SlidingWindows, parts: Sequence[Expr], value: Expr
) -> SlidingWindows | None:
    """The windows with the reductions of one place: all in lanes that may lie outside, and what lies inside alone."""
    lanes = windows.lanes
    moving = [p for p in parts if lanes in p.vars()]
    bounds = [b for b in map(bound, moving) if b is not None]
    inner = unclamped(value, set(bounds))
    rest = [p for p in parts if p not in moving]
    rdims = tuple(v for v in node.rdims if v is not tap)
    loads = [load for load in inner.loads if windows.weighted is None or lanes in load.index.vars()]
    steps = {load.index.coefficient(lanes) for load in loads}
    inside = _inside(bounds, lanes, rdims)
    taken = 1
    for v in rdims:
        taken *= v.extent.constant or WINDOWS.products + 1
    most = WINDOWS.taps if windows.weighted is None else WINDOWS.products // (windows.open + 1)
    if len(bounds) < len(moving) or inside is None or taken > most or not loads:
        return None
    apart = [s.constant if s is not None and s.terms else None for s in steps]
    if any(s is None or not 1 <= s <= MOST_APART for s in apart):
        return None
    if bounds and {b.place.coefficient(lanes) for b in bounds} != steps:
        return None
    dims = tuple(v for v in node.dims if v is not row)

    def reduction(choice: Sequence[Expr], e: Expr) -> Reduce:
        (own,) = node.reductions
        condition = conjunction(choice)
        other = Const(neutral(own.op, e.dtype), e.dtype)
        chosen = e if condition is None else Call("where", (condition, e, other), e.dtype)
        return replace(node, dims=dims, rdims=rdims, reductions=(replace(own, value=chosen),))

    return replace(windows, inner=reduction(rest, inner), edge=reduction([*rest, *moving], value), inside=inside)


def _inside(bounds: Sequence[Bound], lanes: Var, taps: Sequence[Var]) -> tuple[int, int] | None:
    """The lanes all of whose places lie inside: from the first to the one behind the last."""
    extent = lanes.extent.constant or 0
    first, last = 0, extent
    if len({b.place for b in bounds}) > 1:
        return None
    for b in bounds:
        factor = b.place.coefficient(lanes)
        lowest = b.place.substitute({lanes: ZERO, **dict.fromkeys(taps, ZERO)}).constant
        highest = b.place.substitute({lanes: ZERO, **{v: v.extent - 1 for v in taps}}).constant
        if factor is None or not factor.constant or lowest is None or highest is None or factor.constant < 1:
            return None
        if b.limit is None:
            first = max(first, -(lowest // factor.constant))
        elif b.limit.constant is None:
            return None
        else:
            last = min(last, (b.limit.constant - 1 - highest) // factor.constant + 1)
    return first, max(first, last)
