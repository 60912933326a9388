"""Routines behind sizes that a run finds: places of true elements, repeated places, and the order of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.index import ONE, as_index, maximum
from ...ir.plans.gpu import PartPlan
from ...ir.routines import Routine
from ...schedule.gpu.blocks import blocks
from ...schedule.gpu.routine_plans import size_bound
from .emit import TritonEmitter
from .kernel import TL_DTYPE, Launch, grid
from .maps import finish, operand
from .scope import TritonScope

__all__ = ["PLACES", "wide_places"]


@dataclass(frozen=True)
class NonzeroView:
    """n: elements of the mask, of which a program has `part`. parts: of all, rounded up to a power of two. counted:
    there are several. last: the launch that writes the places."""

    params: str
    n: str
    part: str
    parts: int
    counted: bool
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


def wide_places(plan: PartPlan) -> str:
    """What makes places wide enough to count the elements of two runs."""
    return {32: "", 64: ".to(tl.int64)"}[plan.places]


def _scope(node: Routine, plan: PartPlan) -> TritonScope:
    """The templates call inputs x0, x1, ... and outputs y0, y1, ..."""
    scope = TritonScope.of(node, plan)
    scope.buffers |= {b.buffer: f"x{i}" for i, b in enumerate(node.inputs)}
    return scope


def _with_outputs(scope: TritonScope, node: Routine) -> TritonScope:
    scope.buffers |= {b.buffer: f"y{i}" for i, b in enumerate(node.outputs)}
    return scope


def _nonzero_indices(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    (n,) = node.sizes
    found = []
    for plan in parts:
        alone, last = len(parts) == 1, plan is parts[-1]
        part = as_index(plan.run) if alone else maximum(ONE, blocks(n, plan.block * plan.shares)) * plan.block
        programs = ONE if alone else (maximum(n, ONE) + part - 1) // part  # one that counts nothing, too
        scope = _scope(node, plan)
        if last:
            _with_outputs(scope, node)
        if not alone:
            scope.scratch = ("i64", as_index(plan.shares * 8))
        text = TritonEmitter(scope, {})
        numbers = operand(text.index(n)), operand(text.index(part))
        view = NonzeroView("", *numbers, plan.shares, not alone, plan.block, last, plan.pdl)
        stem = name if last else f"{name}_count"
        found.append(finish("nonzero.py.j2", view, scope, stem, grid(programs), node, plan))
    return tuple(found)


def _ends_before(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    n, total = node.sizes
    (plan,) = parts
    scope = _with_outputs(_scope(node, plan), node)
    text = TritonEmitter(scope, {})
    halvings = (size_bound(n) or (1 << 62)).bit_length()
    view = SearchView("", operand(text.index(n)), operand(text.index(total)), plan.block, halvings, plan.pdl)
    return (finish("ends_before.py.j2", view, scope, name, grid(blocks(total, plan.block)), node, plan),)


def _row_order(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    n, columns = node.sizes
    key = TL_DTYPE["i32" if (compute := DTYPES[node.inputs[0].buffer.dtype].compute) == "bool" else compute]
    launches = []
    for i, plan in enumerate(parts):
        last = plan is parts[-1]
        scope = _with_outputs(_scope(node, plan), node) if last else _scope(node, plan)
        if len(parts) > 1:
            scope.scratch = ("i32", n * 8)
        text = TritonEmitter(scope, {})
        view = RowOrderView(
            "", wide_places(plan), operand(text.index(n)), operand(text.index(columns)), key, plan.run, plan.block,
            plan.run.bit_length(), i == 0, i % 2 == 1, last, plan.pdl,
        )  # fmt: skip
        stem = f"{name}_merge" if i else name
        launches.append(finish("row_order.py.j2", view, scope, stem, grid(blocks(n, plan.block)), node, plan))
    return tuple(launches)


#: routine -> its launches
PLACES: Mapping[str, Callable[[Routine, str, tuple[PartPlan, ...]], tuple[Launch, ...]]] = {
    "nonzero_indices": _nonzero_indices,
    "ends_before": _ends_before,
    "row_order": _row_order,
}
