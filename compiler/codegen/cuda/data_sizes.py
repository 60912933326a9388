"""Routines behind sizes that a run finds: places of true elements, repeated places, and the order of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...ir.bounds import largest
from ...ir.dtypes import DTYPES
from ...ir.index import ONE, Index, as_index, maximum
from ...ir.routines import Routine
from ...machine.gpu import Device
from ...schedule.gpu.blocks import blocks, power_of_two, warps_for
from ...schedule.gpu.width import INT32_MAX
from .emit import TritonEmitter
from .kernel import TL_DTYPE, Launch, grid
from .maps import finish_routine, operand
from .scope import TritonScope

__all__ = ["PLACES", "size_bound", "wide_places"]

#: elements that a program has in registers; parts of a mask, each of a program, at most
BLOCK, PARTS = 1024, 1024
#: up to so many elements are one program's
ALONE = 4 * BLOCK
#: rows of a program that merges
ROWS = 128


@dataclass(frozen=True)
class PlacesView:
    """n: elements of the mask, of which a program has `part`. parts: of all, rounded up to a power of two. last: the
    launch that writes the places."""

    params: str
    n: str
    part: str
    parts: int
    block: int
    last: bool
    pdl: bool


@dataclass(frozen=True)
class SearchView:
    params: str
    n: str
    total: str
    block: int
    halvings: int
    pdl: bool


@dataclass(frozen=True)
class RowOrderView:
    """n rows of `columns`, compared as `key`. run: length of the sorted runs; turn: which half of the scratch memory
    they are in. first: they are single rows, in order. last: the result is written. wide: as of SortView."""

    params: str
    wide: str
    n: str
    columns: str
    key: str
    run: int
    block: int
    halvings: int
    first: bool
    turn: bool
    last: bool
    pdl: bool


def size_bound(size: Index) -> int | None:
    """The largest that a size can be; None when nothing is known."""
    return size.constant if size.constant is not None else largest(size)


def wide_places(run: int) -> str:
    """What makes places wide enough to count the elements of two runs."""
    return ".to(tl.int64)" if 2 * run > INT32_MAX else ""


def _scope(node: Routine) -> TritonScope:
    """The templates call inputs x0, x1, ... and outputs y0, y1, ..."""
    scope = TritonScope.of(node)
    scope.buffers |= {b.buffer: f"x{i}" for i, b in enumerate(node.inputs)}
    return scope


def _with_outputs(scope: TritonScope, node: Routine) -> TritonScope:
    scope.buffers |= {b.buffer: f"y{i}" for i, b in enumerate(node.outputs)}
    return scope


def _true_places(node: Routine, name: str, device: Device) -> tuple[Launch, ...]:
    (n,) = node.sizes
    bound = size_bound(n)
    alone = bound is not None and bound <= ALONE
    tiles = ONE if alone else maximum(ONE, blocks(n, BLOCK * PARTS))
    part = as_index(ALONE) if alone else tiles * BLOCK
    programs = ONE if alone else (maximum(n, ONE) + part - 1) // part  # one that counts nothing, too

    def launch(stem: str, last: bool) -> Launch:
        scope = _scope(node)
        if last:
            _with_outputs(scope, node)
        if not alone:
            scope.scratch = ("i64", as_index(PARTS * 8))
        text = TritonEmitter(scope, {})
        view = PlacesView(
            "", operand(text.index(n)), operand(text.index(part)), 1 if alone else PARTS, BLOCK, last, device.pdl
        )  # fmt: skip
        return finish_routine("true_places.py.j2", view, scope, stem, grid(programs), node, warps_for(BLOCK, 8), device)

    return (launch(name, True),) if alone else (launch(f"{name}_count", False), launch(name, True))


def _ends_before(node: Routine, name: str, device: Device) -> tuple[Launch, ...]:
    n, total = node.sizes
    scope = _with_outputs(_scope(node), node)
    text = TritonEmitter(scope, {})
    block = min(256, power_of_two(size_bound(total) or 256))
    halvings = (size_bound(n) or (1 << 62)).bit_length()
    view = SearchView("", operand(text.index(n)), operand(text.index(total)), block, halvings, device.pdl)
    programs = grid(blocks(total, block))
    return (finish_routine("ends_before.py.j2", view, scope, name, programs, node, warps_for(block, 2), device),)


def _row_order(node: Routine, name: str, device: Device) -> tuple[Launch, ...]:
    n, columns = node.sizes
    bound = size_bound(n) or INT32_MAX
    runs = [1, *(1 << i for i in range(1, 31) if 1 << i < bound)]
    key = TL_DTYPE["i32" if (compute := DTYPES[node.inputs[0].buffer.dtype].compute) == "bool" else compute]
    block = min(ROWS, power_of_two(bound))
    launches = []
    for i, run in enumerate(runs):
        last = i == len(runs) - 1
        scope = _with_outputs(_scope(node), node) if last else _scope(node)
        if len(runs) > 1:
            scope.scratch = ("i32", n * 8)
        text = TritonEmitter(scope, {})
        view = RowOrderView(
            "", wide_places(run), operand(text.index(n)), operand(text.index(columns)), key, run, block,
            run.bit_length(), i == 0, i % 2 == 1, last, device.pdl,
        )  # fmt: skip
        stem = f"{name}_merge" if i else name
        programs = grid(blocks(n, block))
        launches.append(
            finish_routine("row_order.py.j2", view, scope, stem, programs, node, warps_for(block, 1), device)
        )
    return tuple(launches)


#: routine -> its launches
PLACES: Mapping[str, Callable[[Routine, str, Device], tuple[Launch, ...]]] = {
    "true_places": _true_places,
    "ends_before": _ends_before,
    "row_order": _row_order,
}
