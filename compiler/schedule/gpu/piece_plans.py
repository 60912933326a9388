"""How long rows of a fixed length are cut into pieces that begin at lines of memory, and what of them registers hold.

codegen/cuda/row_pieces.py has the picture.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, Load
from ...ir.index import ONE, ZERO, Index, Var, of
from ...ir.nodes import Reduce
from ...ir.plans.gpu import PiecesPlan, RowForm, RowStage
from ...machine.gpu import LINE, Device
from ...machine.gpu_programs import PieceProgram
from .blocks import power_of_two

#: ways to widen an element of bfloat16 that is held: codegen/cuda/row_pieces.py has the texts
WAYS_TO_WIDEN = 3


def pieces_of(form: RowForm, device: Device) -> PiecesPlan | None:
    """The pieces of long rows; None where they are of no fixed length, or aligned and read once."""
    columns = {s.column for s in form.stages if s.column is not None}
    column = columns.pop() if len(columns) == 1 else None
    if column is None or column.extent.constant is None or column.extent.constant <= device.rows.held:
        return None
    aligned, held = _aligned(form, column), _read_again(form, column)
    if aligned is None and not held:
        return None
    start, unit = aligned or (None, 0)
    length, facts = column.extent.constant, device.pieces
    if len(held) * length > facts.most_held:
        return _cut(length, PiecesPlan(facts.again, start=start, unit=unit))
    if not held:
        return _cut(length, PiecesPlan(facts.once, start=start, unit=unit))
    if length > facts.most_held_twice or not _widened_apart(form, held):
        return _cut(length, PiecesPlan(facts.held, start=start, unit=unit, held=held))
    pairs = tuple(i for i, stage in enumerate(form.stages) if _reads(stage, held) and in_pairs(stage, held))
    ways = itertools.count()
    widenings = tuple(
        next(ways) if _reads(stage, held) and i not in pairs else None for i, stage in enumerate(form.stages)
    )
    plan = PiecesPlan(facts.held, 0, 0, start, unit, held, True, widenings, pairs, _scales(form))
    return _cut(length, plan)


def program_of(plan: PiecesPlan, device: Device) -> PieceProgram:
    """The program of pieces."""
    return dict(device.pieces.programs)[plan.size, plan.apart]


def _cut(length: int, plan: PiecesPlan) -> PiecesPlan:
    """The plan with its pieces and the tile of what is left; pieces that begin at lines may have elements in front."""
    count = (length - (plan.unit - 1 if plan.start is not None else 0)) // plan.size
    left = length - count * plan.size
    return replace(plan, count=count, rest=power_of_two(left) if left else 0)


def _reads(stage: RowStage, held: tuple[Load, ...]) -> bool:
    """Whether a stage with a column reads what is held."""
    return stage.column is not None and any(held[0] in e.loads for e in stage.node.expressions())


def _scales(form: RowForm) -> tuple[Load, ...]:
    """The values of a row that multiply weights of a softmax."""
    products = [element(s.value) for stage in form.stages if stage.column is not None for s in stage.node.stores]
    found = [
        e.args[1] for e in products
        if isinstance(e, Call) and e.op == "mul" and isinstance(e.args[0], Call) and e.args[0].op == "exp_weight"
    ]  # fmt: skip
    return tuple(dict.fromkeys(e for e in found if isinstance(e, Load) and e.buffer in form.locals))


def _aligned(form: RowForm, column: Var) -> tuple[Index, int] | None:
    """Where the rows of most accesses begin, if that is anywhere, and the elements of a line of memory."""
    accesses = [(load.buffer, load.index) for s in form.stages for e in s.node.expressions() for load in e.loads]
    accesses += [(store.buffer, store.index) for s in form.stages for store in s.node.stores]
    starts: Counter[Index] = Counter()
    sizes = []
    for buffer, index in accesses:
        if index.coefficient(column) == ONE and buffer not in form.locals:
            start = index - of(column)
            if column not in start.vars():
                starts[start] += 1
                sizes.append(DTYPES[buffer.dtype].size)
    start, _ = max(starts.items(), key=lambda item: item[1], default=(ZERO, 0))
    unit = LINE // min(sizes, default=LINE)
    if all(c % unit == 0 for c in start.terms.values()) or not start.nonnegative():
        return None
    return start, unit


def _read_again(form: RowForm, column: Var) -> tuple[Load, ...]:
    """Elements of the row that more than one stage reads."""
    found: Counter[Load] = Counter()
    for stage in form.stages:
        loads = {load for e in stage.node.expressions() for load in e.loads}
        found.update(
            load for load in loads
            if load.index.coefficient(column) == ONE and load.buffer not in form.locals and load.buffer.kind != "const"
        )  # fmt: skip
    return tuple(load for load, stages in found.items() if stages > 1)


def _widened_apart(form: RowForm, held: tuple[Load, ...]) -> bool:
    """Whether a row of bfloat16 is held whose stages each widen its elements in their own way."""
    if len(held) != 1 or held[0].buffer.dtype != "bf16":
        return False
    readers = [s for s in form.stages if any(held[0] in e.loads for e in s.node.expressions())]
    return sum(not in_pairs(s, held) for s in readers) <= WAYS_TO_WIDEN


def in_pairs(stage: RowStage, held: tuple[Load, ...]) -> bool:
    """Whether all that a stage wants of a row of bfloat16 is its largest element: no element is widened for that."""
    node = stage.node
    return isinstance(node, Reduce) and all(
        f.op in ("max", "top") and element(f.value) in held for f in node.reductions
    )


def element(value: Expr) -> Expr:
    """What is cast."""
    while isinstance(value, Call) and value.op == "cast":
        (value,) = value.args
    return value
