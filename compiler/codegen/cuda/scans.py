"""Scans whose steps combine: which function does it, and the kernel that scans pieces of rows side by side."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Call, Expr, substitute
from ...ir.index import ONE, ZERO, Var, product
from ...ir.nodes import Carry, Scan
from ...machine.gpu import Device
from ...schedule.cost.estimates import number
from ...schedule.loops.row_form import flattened
from .blocks import blocks, power_of_two, share, warps_for, whole
from .emit import Place, TritonEmitter, Value
from .kernel import TL_DTYPE, Launch, grid
from .maps import emit_stores, finish
from .reductions import nothing
from .scope import TritonScope

#: shorter scans are as fast step by step
LEAST_STEPS = 16
#: rows whose steps one lane each takes are as fast when there are so many for a multiprocessor
ENOUGH_ROWS = 256
PIECE, TILE = 1024, 2048


@dataclass(frozen=True)
class Combination:
    """How two neighbouring stretches of a scan make one.

    values: what a step alone gives, for each carry. function: of functions.py.j2. scan: Triton's own scan, if any.
    """

    values: tuple[Expr, ...]
    function: str
    scan: str = ""


_SUMS = {"add": ("fold_add", "tl.cumsum"), "mul": ("fold_prod", "tl.cumprod")}
_EXTREMA = {"maximum": "fold_max", "minimum": "fold_min"}
_LAST = {"ge": "fold_last_max", "le": "fold_last_min"}


def combination(carries: tuple[Carry, ...]) -> Combination | None:
    """The combination of a scan's steps, None where they have to be taken in order."""
    first = carries[0].next
    if not isinstance(first, Call):
        return None
    accs = {c.acc for c in carries}
    if any(DTYPES[acc.dtype].compute == "bool" for acc in accs):
        return None
    if len(carries) == 1:
        return _of_one(carries[0].acc, first)
    second = carries[-1].next
    if len(carries) == 2 and first.op == "where" and isinstance(second, Call) and second.op == "where":
        chosen, value, kept = first.args
        agree = second.args[0] == chosen and (kept, second.args[2]) == (carries[0].acc, carries[1].acc)
        values = (value, second.args[1])
        if agree and (function := _last(chosen, value, carries[0].acc)) and not any(_reads(v, accs) for v in values):
            return Combination(values, function)
    return None


def _of_one(acc: Acc, following: Call) -> Combination | None:
    if following.op in _SUMS | _EXTREMA:
        left, right = following.args
        value = right if left == acc else left if right == acc else None
        if value is None or _reads(value, {acc}):
            return None
        if following.op in _SUMS:
            return Combination((value,), *_SUMS[following.op])
        integer = "_integer" if DTYPES[value.dtype].kind != "f" else ""
        return Combination((value,), _EXTREMA[following.op] + integer)
    value = _added_in_logs(acc, following)
    return Combination((value,), "fold_log_add") if value is not None and not _reads(value, {acc}) else None


def _last(chosen: Expr, value: Expr, acc: Acc) -> str | None:
    """The function for `value >= acc` or `value <= acc`, also where the value is no number."""
    if not isinstance(chosen, Call):
        return None
    if chosen.op == "logical_or":
        chosen, other = chosen.args
        if other != Call("isnan", (value,), "bool") or not isinstance(chosen, Call):
            return None
    return _LAST.get(chosen.op) if chosen.args == (value, acc) else None


def _added_in_logs(acc: Acc, following: Call) -> Expr | None:
    """b of log(exp acc + exp b), written as where(.., max + log1p(exp(min - max)), acc)."""
    if following.op != "where" or following.args[2] != acc:
        return None
    total = following.args[1]
    if not (isinstance(total, Call) and total.op == "add" and isinstance(total.args[0], Call)):
        return None
    high = total.args[0]
    if high.op != "maximum" or high.args[0] != acc:
        return None
    low = Call("minimum", high.args, acc.dtype)
    inner: Expr = Call("sub", (low, high), acc.dtype)
    for op in ("exp", "log1p"):
        inner = Call(op, (inner,), acc.dtype)
    return high.args[1] if total.args[1] == inner else None


def _reads(e: Expr, accs: set[Acc]) -> bool:
    return e in accs or any(_reads(child, accs) for child in e.children)


# the kernel ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StartView:
    text: str
    dtype: str


@dataclass(frozen=True)
class ScanRows:
    params: str
    wide: str
    block_rows: int
    rows: str
    masked_rows: bool
    block: int
    steps: str
    masked: bool
    starts: tuple[StartView, ...]
    values: tuple[str, ...]
    scanned: str
    combined: str
    stores: tuple[str, ...]
    pdl: bool


def pays(node: Scan, device: Device) -> bool:
    """Whether scanning rows side by side is faster than a lane for each row."""
    if number(node.step.extent) < LEAST_STEPS:
        return False
    rows = number(product(v.extent for v in node.dims))
    loads = [load.index for e in node.expressions() for load in e.loads]
    along = any(index.coefficient(node.step) == ONE for index in loads)
    return along or rows < ENOUGH_ROWS * device.sms


def scan_rows_launch(node: Scan, how: Combination, name: str, device: Device) -> Launch:
    """The launch of a scan whose steps combine."""
    scope = TritonScope.of(node)
    rows, steps = product(v.extent for v in node.dims), node.step.extent
    block = min(PIECE, power_of_two(steps.constant or PIECE))
    block_rows = share(rows, device, 1, max(TILE // block, 1))
    row, step = Var("row", rows), Var("step", steps)
    loops = {**flattened(node.dims, row), **flattened((node.step,), step)}
    if rows == ONE:
        loops |= dict.fromkeys(node.dims, ZERO)
    places = {row: Place("row", ("r",)), step: Place("step", ("c",))}
    masks = {} if whole(rows, block_rows) else {"r": "row_inside"}
    masks |= {} if whole(steps, block) else {"c": "step_inside"}
    plain = TritonEmitter(scope, {})
    dtypes = [TL_DTYPE[DTYPES[c.acc.dtype].compute] for c in node.carries]
    starts = [plain.value(c.start) for c in node.carries]
    values = TritonEmitter(scope, places, masks)
    moved = [substitute(v, loops) for v in how.values]
    values.count_uses(moved)
    for i, (value, start, dtype) in enumerate(zip(moved, starts, dtypes, strict=True)):
        values.lines.append(f"value{i} = {nothing(f'({block_rows}, {block})', dtype)} + {values.value(value)}")
        if "c" in masks:
            values.lines.append(f"value{i} = tl.where(step_inside, value{i}, {start})")
    own, carried, accs = ([f"{stem}{i}" for i in range(len(dtypes))] for stem in ("value", "carry", "acc"))
    given = f"({', '.join(own)})" if len(own) > 1 else own[0]
    scanned = f"{how.scan}({given}, 1)" if how.scan else f"tl.associative_scan({given}, 1, {how.function})"
    axes = ("c",) if rows == ONE else ("r", "c")
    inner = {c.acc.name: Value(text, axes) for c, text in zip(node.carries, accs, strict=True)}
    end = TritonEmitter(scope, places, masks, inner, stem="u")
    emit_stores(end, node.stores, loops)
    view = ScanRows(
        params="",
        wide=".to(tl.int64)" if scope.wide else "",
        block_rows=block_rows,
        rows=plain.index(rows),
        masked_rows="r" in masks,
        block=block,
        steps=plain.index(steps),
        masked="c" in masks,
        starts=tuple(StartView(s, d) for s, d in zip(starts, dtypes, strict=True)),
        values=tuple(values.lines),
        scanned=f"{', '.join(own)} = {scanned}",
        combined=f"{', '.join(accs)} = {how.function}({', '.join((*carried, *own))})",
        stores=tuple(end.lines),
        pdl=device.pdl,
    )
    programs = grid(blocks(rows, block_rows))
    return finish("scan_rows.py.j2", view, scope, name, programs, node, warps_for(block * block_rows), device)
