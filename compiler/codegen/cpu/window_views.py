"""Views of reductions over windows that overlap: rows of memory are read in order
(schedule/loops/sliding_window.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import Call, Expr
from ...ir.index import (
    Var,
    product,
)
from ...ir.nodes import Reduce
from ...ir.ops import Precedence
from ...ir.plans.loop import CombinedResult, SlidingWindows, WindowWalk
from ...schedule.loops.bound_tightening import trim
from ...schedule.loops.write_combining import Stage
from .emit import Emitter
from .prefetch import place, prefetch_lines
from .reduction_views import OPERANDS, loops_of, reduction_view
from .scope import Scope
from .statements import emit_stores
from .views.loop_kernels import WindowKernel
from .views.loops import Loop
from .views.reductions import RowOfWindows, Weights
from .write_combining import gather, memory_of


def window_view(
    node: Reduce, windows: SlidingWindows, walk: WindowWalk, results: Sequence[CombinedResult], scope: Scope
) -> WindowKernel:
    """The kernel of `windows`, which are those of `node`."""
    (reduction,) = node.reductions
    row, lanes = windows.row, windows.lanes
    text, walks = Emitter(scope, None), walk.walks
    span = ("0", text.index(row.extent))
    rows = loops_of(walks, scope, text)
    if walk.block is not None:
        first = f"{scope.loop(walk.block)} * {walk.size}"
        span = first, f"smaller({first} + {walk.size}, {span[1]})"
    combined = gather(results, [Stage(node, lanes)], walks, scope)
    row_name, at, lane = (scope.loop(v) for v in (row, windows.at, lanes))
    fetched = _fetched(walk, lanes, scope)
    inner, edge = (_row(n, windows, fetched, scope) for n in (windows.inner, windows.edge))
    names = {reduction.acc.name: "acc0"}
    end, end_tail = (Emitter(scope, lanes, tail, names, frozenset(names)) for tail in (False, True))
    for emitter in (end, end_tail):
        emit_stores(emitter, node)
    taken = product(v.extent for v in windows.inner.rdims) * lanes.extent * walk.size
    view = reduction_view(reduction, "acc0", "", "")
    return WindowKernel(
        "windows.cpp.j2",
        scope.params(),
        rows,
        text.product(v.extent for v in walks),
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
        (*end_tail.pre, *end_tail.body),
        scope.streams(),
        "" if windows.weighted is None else scope.loop(windows.weighted),
        memory_of(combined),
        combined,
    )


def _row(node: Reduce, windows: SlidingWindows, fetched: tuple[str, ...], scope: Scope) -> RowOfWindows:
    """The reduction of one row's place, in whole vectors and in the last lanes."""
    turns = tuple(v.extent.constant or 0 for v in node.rdims)
    node = trim(node, windows.lanes)
    (reduction,) = node.reductions
    loops = loops_of(node.rdims, scope, Emitter(scope, None))
    weight = None
    if windows.weighted is not None:
        value, factor = _factors(reduction.value, windows.weighted)
        reduction, weight = replace(reduction, value=value), _weights(factor, windows, scope)
    main, tail = (Emitter(scope, windows.lanes, tail=p) for p in (False, True))
    for e in (main, tail):
        e.count_uses([reduction.value])
    needed = OPERANDS.get(reduction.op, Precedence.LOWEST)
    view = reduction_view(reduction, "acc0", main.lanes(reduction.value, needed), tail.lanes(reduction.value, needed))
    return RowOfWindows(
        tuple(_known(loop, n) for loop, n in zip(loops, turns, strict=True)),
        tuple(replace(loop, most=n) for loop, n in zip(loops, turns, strict=True) if not loop.extent.isdigit()),
        (view,),
        tuple(main.pre),
        (*main.body,),
        (*tail.body,),
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
    main, tail = (Emitter(scope, windows.lanes, tail=p) for p in (False, True))
    for e in (main, tail):
        e.count_uses([factor])
    values = main.lanes(factor, Precedence.LOWEST), tail.lanes(factor, Precedence.LOWEST)
    return Weights((*main.pre, *main.body), (*tail.pre, *tail.body), *values)


def _known(loop: Loop, most: int) -> Loop:
    """A loop over taps, whose number is asked for in front of a walk where it is not the same everywhere."""
    return Loop(loop.name, loop.extent if loop.extent.isdigit() else f"{loop.name}_count", most)


def _fetched(walk: WindowWalk, lanes: Var, scope: Scope) -> tuple[str, ...]:
    """The statements that fetch what the windows to come read."""
    if not walk.shared:
        return prefetch_lines((p for operand in walk.prefetch for p in operand), lanes, scope)
    text = Emitter(scope, lanes)
    found = []
    for operand in walk.prefetch:
        share = f"prefetch_share_l{operand[0].level}<{lanes.extent.constant}>"
        found.append(f"{share}({scope.loop(lanes)}, {', '.join(place(p, text, scope) for p in operand)});")
    return tuple(found)
