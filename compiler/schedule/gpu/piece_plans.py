"""How long rows of a fixed length are cut into pieces that begin at lines of memory, and what of them registers hold.

codegen/cuda/row_pieces.py has the picture.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, Load
from ...ir.index import ONE, ZERO, Index, Var, of
from ...ir.nodes import Reduce
from ...ir.plans.gpu import PiecesPlan
from ...machine.gpu import LINE
from ..loops.row_form import MAX_ROW, RowForm, RowStage

#: ways to widen an element of bfloat16 that is held: codegen/cuda/row_pieces.py has the texts
WAYS_TO_WIDEN = 3
#: elements that the registers of a program hold, and of each of two
MOST_HELD, MOST_HELD_TWICE = 25 * 2048, 99 * 512


@dataclass(frozen=True)
class Pieces:
    """Warps of a program, and registers of a thread where they are bounded."""

    warps: int
    registers: int | None = None


#: elements of a piece of rows that are read once, that registers hold, and that are read again from L2 (two programs
#: for each multiprocessor, whose rows fill half of it)
ONCE, HELD, AGAIN = 4096, 2048, 8192
#: size of a piece, whether every stage widens in its own way -> a program. Measured on an H200 with rows of 50257
#: half-precision numbers (docs/decisions/0031, 0055)
PIECES = {
    (ONCE, False): Pieces(4),
    (AGAIN, False): Pieces(32),
    (HELD, False): Pieces(8),
    (HELD, True): Pieces(8, 128),
}


def pieces_of(form: RowForm) -> PiecesPlan | None:
    """The pieces of long rows; None where they are of no fixed length, or aligned and read once."""
    columns = {s.column for s in form.stages if s.column is not None}
    column = columns.pop() if len(columns) == 1 else None
    if column is None or column.extent.constant is None or column.extent.constant <= MAX_ROW:
        return None
    aligned, held = _aligned(form, column), _read_again(form, column)
    if aligned is None and not held:
        return None
    start, unit = aligned or (None, 0)
    if len(held) * column.extent.constant > MOST_HELD:
        return PiecesPlan(AGAIN, start, unit)
    if not held:
        return PiecesPlan(ONCE, start, unit)
    apart = column.extent.constant <= MOST_HELD_TWICE and _widened_apart(form, held)
    return PiecesPlan(HELD, start, unit, held, apart)


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
