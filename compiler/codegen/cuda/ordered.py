"""Scans and scatters as Triton kernels: lanes side by side, each of which does its steps in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Const, Expr, IndexValue, Load, substitute
from ...ir.in_place import addend
from ...ir.index import Atom, Index, Indirect, Var, product
from ...ir.nodes import Scan, Scatter, Store
from ...ir.plans.gpu import ScanPlan, ScatterPlan
from ...ir.rewrite import flattened
from ...schedule.gpu.blocks import blocks, whole
from ...schedule.loops.collapse import filling
from .emit import Place, TritonEmitter, Value
from .kernel import TL_DTYPE, Launch, grid
from .maps import emit_stores, finish, map_launch, moved_store, operand
from .scans import scan_rows_launch
from .scope import TritonScope


@dataclass(frozen=True)
class ScanView:
    params: str
    wide: str
    block: int
    masked: bool
    total: str
    before: tuple[str, ...]
    steps: str
    body: tuple[str, ...]
    pdl: bool


@dataclass(frozen=True)
class ScatterView:
    params: str
    wide: str
    block: int
    masked: bool
    total: str
    steps: str
    body: tuple[str, ...]
    pdl: bool


@dataclass(frozen=True)
class LastScatterView(ScatterView):
    """own, later: the indices of a step, and of `ahead` later ones. same: where they lead to the same place."""

    blocks: str
    ahead: int
    own: tuple[str, ...]
    later: tuple[str, ...]
    same: str


@dataclass(frozen=True)
class FirstScatterView(LastScatterView):
    """before, after: the elements as they are found, and their stores. rows, many: see ScatterPlan. met, same_run: the
    indices of a run of `rows` steps, and where they lead to the same places. added: the sums of a run."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    rows: int
    many: int
    met: tuple[str, ...]
    same_run: str
    added: tuple[str, ...]


def scan_launch(node: Scan, name: str, plan: ScanPlan) -> Launch:
    """The launch of a scan: rows side by side where its steps combine, else a lane for each row."""
    if plan.combination is not None:
        return scan_rows_launch(node, plan.combination, name, plan)
    scope = TritonScope.of(node, plan)
    i, step, block = _lanes(node.dims), Var("step", node.step.extent), plan.rows
    masked = not whole(i.extent, block)
    values = {**flattened(node.dims, i), **flattened((node.step,), step)}
    lanes = ("i",) if node.dims else ()
    places = {i: Place("i", lanes), step: Place("step", counted=True)}
    masks = {"i": "i_inside"} if masked else {}
    shape = f"({block},)" if lanes else "[]"
    accs: dict[str, Value] = {}
    before = []
    for number, carry in enumerate(node.carries):
        accs[carry.acc.name] = Value(f"acc{number}", lanes)
        start = TritonEmitter(scope, places, masks)
        text = start.value(substitute(carry.start, values))
        dtype = TL_DTYPE[DTYPES[carry.acc.dtype].compute]
        before += [*start.lines, f"acc{number} = tl.full({shape}, {text}, {dtype})"]
    body = TritonEmitter(scope, places, masks, accs)
    following = [substitute(carry.next, values) for carry in node.carries]
    body.count_uses(following)
    texts = [body.value(e) for e in following]
    for number, (carry, text) in enumerate(zip(node.carries, texts, strict=True)):
        dtype = TL_DTYPE[DTYPES[carry.acc.dtype].compute]
        body.lines.append(f"next{number} = ({text}).to({dtype})")
    body.lines += [f"acc{number} = next{number}" for number in range(len(node.carries))]
    end = TritonEmitter(scope, places, masks, accs, stem="u")
    emit_stores(end, node.stores, values)
    plain = TritonEmitter(scope, {})
    view = ScanView(
        "", _wide(scope), block, masked, plain.index(i.extent), tuple(before), plain.index(node.step.extent),
        (*body.lines, *end.lines), plan.pdl,
    )  # fmt: skip
    return finish("scan.py.j2", view, scope, name, grid(blocks(i.extent, block)), node, plan)


def scatter_launches(node: Scatter, name: str, plan: ScatterPlan) -> tuple[Launch, ...]:
    """The launch that fills the result, and the one that updates it; in place there is nothing to fill."""
    fill: tuple[Launch, ...] = ()
    if plan.fill is not None:
        fill = (map_launch(filling(node), f"{name}_fill", plan.fill),)
    scope = TritonScope.of(node, plan)
    free, late = node.udims[: node.parallel], node.udims[node.parallel :]
    i, step, block = _lanes(free), Var("late", product(v.extent for v in late)), plan.block
    masked = not whole(i.extent, block)
    values = {**flattened(free, i), **flattened(late, step)}
    masks = {"i": "i_inside"} if masked else {}
    counted = plan.form == "ordered"
    emit = TritonEmitter(scope, {i: Place("i", ("i",)), step: Place("late", counted=counted)}, masks)
    emit_stores(emit, node.updates, values)
    plain = TritonEmitter(scope, {})
    view = ScatterView(
        "", _wide(scope), block, masked, plain.index(i.extent), plain.index(step.extent), tuple(emit.lines), plan.pdl
    )
    if plan.form == "ordered":
        return (*fill, finish("scatter.py.j2", view, scope, name, grid(blocks(i.extent, block)), node, plan))
    programs = grid(blocks(i.extent, block) * step.extent)
    blocks_text = plain.index(blocks(i.extent, block))
    if plan.form == "first":
        combined = _combined(node, scope, plan, {i: Place("i", ("i",))}, masks, step, values)
        texts = vars(view) | _compared_steps(node, scope, plan, late, step, "this") | combined
        first = FirstScatterView(**texts, blocks=blocks_text)
        return (*fill, finish("scatter_first.py.j2", first, scope, name, programs, node, plan))
    texts = vars(view) | _compared_steps(node, scope, plan, late, step, "late")
    last = LastScatterView(**texts, blocks=blocks_text)
    return (*fill, finish("scatter_last.py.j2", last, scope, name, programs, node, plan))


def _combined(
    node: Scatter,
    scope: TritonScope,
    plan: ScatterPlan,
    places: dict[Var, Place],
    masks: dict[str, str],
    step: Var,
    values: dict[Atom, Index],
) -> dict[str, Any]:
    """Updates whose elements stay in registers: how they are found, changed by one step, and stored."""
    start = TritonEmitter(scope, {**places, step: Place("this")}, masks, stem="f")
    end = TritonEmitter(scope, {**places, step: Place("this")}, masks, stem="s")
    updates = [moved_store(s, values) for s in node.updates]
    types = [TL_DTYPE[DTYPES[s.buffer.dtype].compute] for s in updates]
    found: dict[tuple[object, Index], Value] = {}
    for number, (update, dtype) in enumerate(zip(updates, types, strict=True)):
        element = Load(update.buffer, update.index)
        value = Value(f"found{number}", start.axes(element))
        start.lines.append(f"{value.text} = ({start.value(element)}).to({dtype})")
        end.put(update, value)
        found[update.buffer, update.index] = value
    body = TritonEmitter(scope, {**places, step: Place("late")}, masks, known=found)
    body.count_uses(s.value for s in updates)
    texts = [f"({body.value(s.value)}).to({dtype})" for s, dtype in zip(updates, types, strict=True)]
    body.lines += [f"found{number} = {text}" for number, text in enumerate(texts)]
    added = _added(updates, list(found.values()), scope, places, masks, step) if plan.rows else ()
    lines = {"before": tuple(start.lines), "body": tuple(body.lines), "after": tuple(end.lines), "added": added}
    return {**lines, "rows": plan.rows, "many": plan.many}


def _added(
    updates: Sequence[Store],
    found: Sequence[Value],
    scope: TritonScope,
    places: dict[Var, Place],
    masks: dict[str, str],
    step: Var,
) -> tuple[str, ...]:
    """What a run of steps adds to the elements: rows of updates, of which those that lead elsewhere are zeros."""
    wide = {v: Place(f"{place.text}[None, :]", place.axes) for v, place in places.items()}
    inside = {axis: f"{mask}[None, :]" for axis, mask in masks.items()}
    emit = TritonEmitter(scope, {**wide, step: Place("run[:, None]", ("run",))}, {**inside, "run": "meets"}, stem="g")
    values = [addend(s) for s in updates]
    emit.count_uses(value for value in values if value is not None)
    for element, value in zip(found, values, strict=True):
        assert value is not None
        total = f"tl.sum(tl.where(meets, {emit.value(value)}, 0), 0)"
        emit.lines.append(f"{element.text} += {total if element.axes else f'tl.sum({total}, 0)'}")
    return tuple(emit.lines)


def _compared_steps(
    node: Scatter, scope: TritonScope, plan: ScatterPlan, late: tuple[Var, ...], step: Var, this: str
) -> dict[str, Any]:
    """What finds out whether another step leads to the places of `this` one: the indices of this step, those of `ahead`
    others and of a run of `rows` steps, and where all of them are equal to this one's."""
    moved = _indices(node, late, step)
    own = TritonEmitter(scope, {step: Place(this)}, stem="u")
    own.count_uses(moved)
    texts = [operand(own.value(e)) for e in moved]
    later, same = _compared(moved, texts, scope, step, "other", "v")
    found = {"ahead": plan.ahead, "own": tuple(own.lines), "later": later, "same": same}
    if plan.form == "first":
        found["met"], found["same_run"] = _compared(moved, texts, scope, step, "run", "h")
    return found


def _indices(node: Scatter, late: tuple[Var, ...], step: Var) -> list[Expr]:
    """The indices that lead a step to its places, each once."""
    found = [a for update in node.updates for m in update.index.terms for a in m if isinstance(a, Indirect)]
    return [substitute(_counted(atom), flattened(late, step)) for atom in dict.fromkeys(found)]


def _compared(
    indices: Sequence[Expr], own: Sequence[str], scope: TritonScope, step: Var, name: str, stem: str
) -> tuple[tuple[str, ...], str]:
    """The lines that read the indices of the steps `name`, and where all are equal to those of one step."""
    emit = TritonEmitter(scope, {step: Place(name, (name,))}, {name: f"{name}_inside"}, stem=stem)
    emit.count_uses(indices)
    those = [operand(emit.value(e)) for e in indices]
    return tuple(emit.lines), " & ".join(f"({a} == {b})" for a, b in zip(those, own, strict=True))


def _counted(atom: Indirect) -> Expr:
    """The value of an index, from 0 on: negative ones count from the end where that is allowed."""
    value = atom.value
    assert isinstance(value, Expr)
    if not atom.wrap:
        return value
    below = Call("lt", (value, Const(0, value.dtype)), "bool")
    return Call("where", (below, Call("add", (value, IndexValue(atom.extent)), value.dtype), value), value.dtype)


def _lanes(loops: tuple[Var, ...]) -> Var:
    return Var("i", product(v.extent for v in loops))


def _wide(scope: TritonScope) -> str:
    return ".to(tl.int64)" if scope.wide else ""
