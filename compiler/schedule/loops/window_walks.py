"""How sliding windows iterate over rows of memory: blocks of windows, and prefetches of the next rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import ZERO, Atom, Binary, Index, Var, as_index, exact_div, of
from ...ir.nodes import Reduce
from ...ir.plans.loop import Prefetch, SlidingWindows, WindowWalk
from ...machine.cpu import LINE, STREAM_PREFETCH
from ...machine.cpu_loops import TASKS, WINDOWS
from .interleaved_streams import widest
from .prefetch import prefetches, stream_prefetches


def window_walk(node: Reduce, windows: SlidingWindows, nontemporal: Collection[Buffer]) -> WindowWalk:
    """The walk of a reduction over windows."""
    row = windows.row
    outer = tuple(v for v in node.dims if v not in (row, windows.lanes))
    across = _across(windows, outer)
    size = _block(node, windows, outer, across, nontemporal)
    block = Var(f"{row.name}_block", (row.extent + (size - 1)) // as_index(size))
    blocks = () if row.extent.constant == size else (block,)
    walks = (*outer[:-1], *blocks, outer[-1]) if across is not None else (*outer, *blocks)
    own = blocks[0] if blocks else None
    if walks == outer and across is None and outer:
        return WindowWalk(walks, own, size, tuple((p,) for p in _stream(windows, outer)))
    whole = (windows.lanes.extent.constant or 1) % LINE == 0
    return WindowWalk(walks, own, size, _fetched(windows, across, outer, whole), whole)


def _stream(windows: SlidingWindows, outer: Sequence[Var]) -> tuple[Prefetch, ...]:
    """What follows in memory on what a place of a walk reads."""
    first: dict[Atom, Index] = dict.fromkeys(windows.inner.rdims, ZERO)
    return stream_prefetches(windows.lanes, (f.value for f in windows.inner.reductions), windows.at, outer, first)


def _fetched(
    windows: SlidingWindows, across: Var | None, outer: Sequence[Var], whole: bool
) -> tuple[tuple[Prefetch, ...], ...]:
    """What the windows of the next row read and those of this one did not, operand by operand.

    Each vector fetches its share of all that lies at one place, so that rows that are walked over in strips of columns
    come in the order of memory. Several rows of places of few lines come in that order as well, at the pace of the walk
    and a little ahead of its last row; else they would be as many streams.
    """
    if windows.inner.rdims != (across,):
        return ()
    assert across is not None
    following, values, lanes = outer[-1], [f.value for f in windows.inner.reductions], windows.lanes
    new, width = _read_anew(windows, across), (lanes.extent.constant or 1) * widest(values)
    moved: list[dict[Atom, Index]] = [
        {following: of(following) + 1, across: across.extent - back} for back in range(new, 0, -1)
    ]
    ordered = new > 1 and width <= WINDOWS.near_place_bytes
    if ordered:
        at = of(windows.at) * new + STREAM_PREFETCH // width
        moved = [{windows.at: at + further, across: across.extent - 1} for further in range(new)]
    first: dict[Atom, Index] = {lanes: ZERO} if whole else {}
    rows = [prefetches(lanes, values, (following,), {**places, **first}, far=not ordered) for places in moved]
    return tuple(dict.fromkeys(zip(*rows, strict=True)))


def _read_anew(windows: SlidingWindows, across: Var) -> int:
    """Rows that a row of windows reads and the one before did not."""
    return min(windows.step, across.extent.constant or 1)


def _across(windows: SlidingWindows, outer: Sequence[Var]) -> Var | None:
    """The tap down the rows of a walk along them, whose windows lie along the last of the outer loops; None where the
    walk is down the rows itself."""
    if not outer:
        return None
    return next((tap for tap in windows.inner.rdims if _lie_along(windows.inner, outer[-1], tap)), None)


def _lie_along(node: Reduce, row: Var, tap: Var) -> bool:
    """Whether windows along a loop, which the tap walks through, overlap or lie side by side."""
    for load in node.reductions[0].value.loads:
        if any(isinstance(a, Binary) and {row, tap} <= a.a.vars() | a.b.vars() for a in load.index.atoms()):
            return True
        apart, near = load.index.coefficient(row), load.index.coefficient(tap)
        step = exact_div(apart, near) if apart is not None and near is not None and near.terms else None
        if step is not None and step.constant and step.constant <= (tap.extent.constant or 0):
            return True
    return False


def _block(
    node: Reduce, windows: SlidingWindows, outer: Sequence[Var], across: Var | None, nontemporal: Collection[Buffer]
) -> int:
    """Windows that are walked over at once: all, but where threads would have too few walks or the rows of a strip of
    columns would leave the first level cache."""
    count = windows.row.extent.constant or WINDOWS.most_walk
    if across is not None and _read_anew(windows, across) == 1 and all(s.buffer in nontemporal for s in node.stores):
        taps = math.prod(v.extent.constant or 1 for v in windows.inner.rdims) + 1
        column = taps * (windows.lanes.extent.constant or 1) * DTYPES[node.reductions[0].value.dtype].size
        return min(count, max(WINDOWS.least_walk, WINDOWS.strip_bytes // (column * windows.step)))
    walks = math.prod(v.extent.constant or 1 for v in outer)
    size = max(WINDOWS.least_walk, -(-count * walks // TASKS.rows))
    pieces = max(1, min(-(-count // size), count // (WINDOWS.overlaps * windows.open)))
    return -(-count // pieces)
