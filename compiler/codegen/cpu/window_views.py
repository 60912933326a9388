"""Views of folds over windows that overlap: rows of memory are read in order (schedule/loops/sliding_window.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr
from ...ir.index import (
    ZERO,
    Atom,
    Binary,
    Index,
    Var,
    as_index,
    exact_div,
    of,
    product,
)
from ...ir.nodes import Reduce
from ...ir.ops import Precedence
from ...ir.plans.loop import SlidingWindows
from ...schedule.loops.bound_tightening import trim
from ...schedule.loops.prefetch import AHEAD_BYTES, prefetches
from ...schedule.loops.store_policy import LINE
from ...schedule.loops.streams import widest
from ...schedule.loops.write_combining import Stage, combined_results
from .emit import Emitter
from .nontemporal import is_large
from .prefetch import place, stream_ahead
from .reduction_views import OPERANDS, fold_view, loops_of
from .scope import Scope
from .statements import emit_stores
from .views.loop_kernels import WindowKernel
from .views.loops import Loop
from .views.reductions import RowOfWindows, Weights
from .write_combining import gather, memory_of

LEAST_WALKS = 64  # of a kernel that threads share
LEAST_WINDOWS, MOST_WINDOWS = 8, 64  # of a walk: the first rows of one are folded by that before it as well
LEAST_OVERLAPS = 6  # of a walk: times as many windows as are open where it begins
NEAR_PLACE = 256  # bytes of a place whose lines are fetched in the order of memory
STRIP_BYTES = 12288  # of the rows of a strip of columns, which the next rows of the result read again


def window_view(node: Reduce, windows: SlidingWindows, scope: Scope) -> WindowKernel:
    """The kernel of `windows`, which are those of `node`."""
    (fold,) = node.folds
    row, lanes = windows.row, windows.lanes
    outer = [v for v in node.dims if v not in (row, lanes)]
    across = _across(windows, outer)
    size = _block(node, windows, outer, across, scope)
    text = Emitter(scope, None)
    blocks = [Var(f"{row.name}_block", (row.extent + (size - 1)) // as_index(size))]
    span = ("0", text.index(row.extent))
    if row.extent.constant == size:
        blocks = []
    walks = [*outer[:-1], *blocks, outer[-1]] if across is not None else [*outer, *blocks]
    rows = loops_of(walks, scope, text)
    for block in blocks:
        first = f"{scope.loop(block)} * {size}"
        span = first, f"smaller({first} + {size}, {span[1]})"
    written = [Stage(node, lanes)]
    combined = combined_results(written, walks, scope.nontemporal) if walks == outer else ()
    gathered = gather(combined, written, walks, scope)
    row_name, at, lane = (scope.loop(v) for v in (row, windows.at, lanes))
    planes = walks == outer and across is None and bool(outer)
    fetched = _stream(windows, outer, scope) if planes else _fetched(windows, across, outer, scope)
    inner, edge = (_row(n, windows, fetched, scope) for n in (windows.inner, windows.edge))
    names = {fold.acc.name: "acc0"}
    end, end_part = (Emitter(scope, lanes, part, names, frozenset(names)) for part in (False, True))
    for emitter in (end, end_part):
        emit_stores(emitter, node)
    taken = product(v.extent for v in windows.inner.rdims) * lanes.extent * size
    view = fold_view(fold, "acc0", "", "")
    return WindowKernel(
        "windows.cpp.j2",
        scope.params(),
        rows,
        text.index(product(v.extent for v in walks)),
        text.index(taken),
        (row_name, at, lane),
        span,
        (windows.taps, windows.step, windows.pad, windows.open),
        "kNoEnd" if windows.size is None else text.index(windows.size),
        text.index(lanes.extent),
        windows.inside,
        view,
        inner,
        edge,
        (*end.pre, *end.body),
        (*end_part.pre, *end_part.body),
        scope.streams(),
        "" if windows.weighted is None else scope.loop(windows.weighted),
        memory_of(gathered),
        gathered,
    )


def _across(windows: SlidingWindows, outer: Sequence[Var]) -> Var | None:
    """The tap down the rows of a walk along them, whose windows lie along the last of the outer loops; None where the
    walk is down the rows itself."""
    if not outer:
        return None
    return next((tap for tap in windows.inner.rdims if _lie_along(windows.inner, outer[-1], tap)), None)


def _lie_along(node: Reduce, row: Var, tap: Var) -> bool:
    """Whether windows along a loop, which the tap walks through, overlap or lie side by side."""
    for load in node.folds[0].value.loads:
        if any(isinstance(a, Binary) and {row, tap} <= a.a.vars() | a.b.vars() for a in load.index.atoms()):
            return True
        apart, near = load.index.coefficient(row), load.index.coefficient(tap)
        step = exact_div(apart, near) if apart is not None and near is not None and near.terms else None
        if step is not None and step.constant and step.constant <= (tap.extent.constant or 0):
            return True
    return False


def _block(node: Reduce, windows: SlidingWindows, outer: Sequence[Var], across: Var | None, scope: Scope) -> int:
    """Windows that are walked over at once: all, but where threads would have too few walks or the rows of a strip of
    columns would leave the first level cache."""
    count = windows.row.extent.constant or MOST_WINDOWS
    if across is not None and _read_anew(windows, across) == 1 and all(is_large(s.buffer, scope) for s in node.stores):
        taps = math.prod(v.extent.constant or 1 for v in windows.inner.rdims) + 1
        column = taps * (windows.lanes.extent.constant or 1) * DTYPES[node.folds[0].value.dtype].size
        return min(count, max(LEAST_WINDOWS, STRIP_BYTES // (column * windows.step)))
    walks = math.prod(v.extent.constant or 1 for v in outer)
    size = max(LEAST_WINDOWS, -(-count * walks // LEAST_WALKS))
    pieces = max(1, min(-(-count // size), count // (LEAST_OVERLAPS * windows.open)))
    return -(-count // pieces)


def _row(node: Reduce, windows: SlidingWindows, fetched: tuple[str, ...], scope: Scope) -> RowOfWindows:
    """The fold of one row's place, in whole vectors and in the last lanes."""
    turns = tuple(v.extent.constant or 0 for v in node.rdims)
    node = trim(node, windows.lanes)
    (fold,) = node.folds
    loops = loops_of(node.rdims, scope, Emitter(scope, None))
    weight = None
    if windows.weighted is not None:
        value, factor = _factors(fold.value, windows.weighted)
        fold, weight = replace(fold, value=value), _weights(factor, windows, scope)
    full, part = (Emitter(scope, windows.lanes, part=p) for p in (False, True))
    for e in (full, part):
        e.count_uses([fold.value])
    needed = OPERANDS.get(fold.op, Precedence.LOWEST)
    view = fold_view(fold, "acc0", full.lanes(fold.value, needed), part.lanes(fold.value, needed))
    return RowOfWindows(
        tuple(_known(loop, n) for loop, n in zip(loops, turns, strict=True)),
        tuple(replace(loop, most=n) for loop, n in zip(loops, turns, strict=True) if not loop.extent.isdigit()),
        (view,),
        tuple(full.pre),
        (*full.body,),
        (*part.body,),
        fetched,
        weight,
    )


def _factors(value: Expr, tap: Var) -> tuple[Expr, Expr]:
    """The factor that is the same whatever the tap, 0 where the product is, and the other one."""
    if isinstance(value, Call) and value.op == "where":
        own, factor = _factors(value.args[1], tap)
        return replace(value, args=(value.args[0], own, value.args[2])), factor
    assert isinstance(value, Call)
    own, factor = value.args
    return (factor, own) if tap in own.vars() else (own, factor)


def _weights(factor: Expr, windows: SlidingWindows, scope: Scope) -> Weights:
    assert windows.weighted is not None
    scope.loop(windows.weighted)
    full, part = (Emitter(scope, windows.lanes, part=p) for p in (False, True))
    for e in (full, part):
        e.count_uses([factor])
    values = full.lanes(factor, Precedence.LOWEST), part.lanes(factor, Precedence.LOWEST)
    return Weights((*full.pre, *full.body), (*part.pre, *part.body), *values)


def _stream(windows: SlidingWindows, outer: Sequence[Var], scope: Scope) -> tuple[str, ...]:
    """What follows in memory on what a place of a walk reads."""
    first: dict[Atom, Index] = dict.fromkeys(windows.inner.rdims, ZERO)
    return stream_ahead(scope, windows.lanes, (f.value for f in windows.inner.folds), windows.at, outer, first)


def _known(loop: Loop, most: int) -> Loop:
    """A loop over taps, whose number is asked for in front of a walk where it is not the same everywhere."""
    return Loop(loop.name, loop.extent if loop.extent.isdigit() else f"{loop.name}_turns", most)


def _fetched(windows: SlidingWindows, across: Var | None, outer: Sequence[Var], scope: Scope) -> tuple[str, ...]:
    """What the windows of the next row read and those of this one did not.

    Each vector fetches its share of all that lies at one place, so that rows that are walked over in strips of columns
    come in the order of memory. Several rows of places of few lines come in that order as well, at the pace of the walk
    and a little ahead of its last row; else they would be as many streams.
    """
    if windows.inner.rdims != (across,):
        return ()
    assert across is not None
    following, values, lanes = outer[-1], [f.value for f in windows.inner.folds], windows.lanes
    new, width = _read_anew(windows, across), (lanes.extent.constant or 1) * widest(values)
    moved: list[dict[Atom, Index]] = [
        {following: of(following) + 1, across: across.extent - turn} for turn in range(new, 0, -1)
    ]
    ordered = new > 1 and width <= NEAR_PLACE
    if ordered:
        at = of(windows.at) * new + AHEAD_BYTES // width
        moved = [{windows.at: at + turn, across: across.extent - 1} for turn in range(new)]
    whole = (lanes.extent.constant or 1) % LINE == 0
    first: dict[Atom, Index] = {lanes: ZERO} if whole else {}
    text = Emitter(scope, lanes)
    found = (prefetches(lanes, values, (following,), {**places, **first}) for places in moved)
    rows = [tuple(place(p, text, scope) for p in row) for row in found]
    columns = dict.fromkeys(zip(*rows, strict=True))  # one for each operand
    if whole:
        share = f"fetch_share{'_near' if ordered else ''}<{lanes.extent.constant}>"
        return tuple(f"{share}({scope.loop(lanes)}, {', '.join(c)});" for c in columns)
    fetch = "fetch_near" if ordered else "fetch_far"
    return tuple(dict.fromkeys(f"{fetch}({at});" for c in columns for at in c))


def _read_anew(windows: SlidingWindows, across: Var) -> int:
    """Rows that a row of windows reads and the one before did not."""
    return min(windows.step, across.extent.constant or 1)
