"""Long rows of a fixed length as Triton kernels: whole pieces of a row, and a tile of what is left of it.

Rows whose length is no multiple of 128 bytes begin anywhere. Pieces begin at the first element of a row that begins a
line of memory, so that they are read and written in whole lines, 16 bytes at a time; what lies in front of them goes
with what lies behind. Rows that are read more than once stay in registers if they fit:

    acc = max over the row                held = ()
                                          for i in tl.static_range(12):
                                              held += (tl.load(...),)
                                          acc = tl.full((4096,), -inf)
                                          for i in tl.static_range(12):
                                              acc = max(acc, held[i])
                                          acc = max(tl.max(acc), tl.max(rest))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, Load
from ...ir.index import ONE, ZERO, Index, Var, of
from ...ir.nodes import Fold, Nest, Reduce
from ...machine.gpu import ACCESS, LINE, Device
from ...schedule.loops.row_form import MAX_ROW, RowForm, RowStage
from .blocks import power_of_two
from .emit import Aligned, Place, TritonEmitter, Value
from .kernel import TL_DTYPE, Launch
from .maps import finish
from .reductions import FoldForm, fold_form, is_truth
from .row_printer import RowPrinter
from .scope import TritonScope


@dataclass(frozen=True)
class Pieces:
    """Elements of a piece, warps of a program, registers of a thread where they are bounded. Measured on an H200 with
    rows of 50257 half-precision numbers (docs/decisions/0031, 0055)."""

    size: int
    warps: int
    registers: int | None = None


#: of rows that registers hold (a program for each multiprocessor, or two), that are read once, and again from L2 (two
#: programs for each multiprocessor, whose rows fill half of L2)
HELD, HELD_TWICE = Pieces(2048, 8), Pieces(2048, 8, 128)
ONCE, AGAIN = Pieces(4096, 4), Pieces(8192, 32)
#: elements that the registers of a program hold, and of each of two
MOST_HELD, MOST_HELD_TWICE = 25 * 2048, 99 * 512
#: what widens an element that is held: each stage has an instruction of its own, as a value that two stages have in
#: common would be kept for each element, in twice the registers
WIDENED = ("widened_by_shift({x})", "widened_by_bytes({x})", "{x}.to(tl.float32)")


@dataclass(frozen=True)
class Held:
    """What stays in registers: a tuple `name` of the pieces, and `name`_rest; load, rest: their texts."""

    name: str
    load: str
    rest: str


@dataclass(frozen=True)
class PiecesStage:
    """body: of a piece; rest: of the tile that is left; both empty in a stage of one value for each row. counted: the
    body names the column."""

    before: tuple[str, ...]
    body: tuple[str, ...]
    rest: tuple[str, ...]
    after: tuple[str, ...]
    counted: bool = False


@dataclass(frozen=True)
class RowPieces:
    """start: of a row, whose pieces begin at the next multiple of `unit` elements; "" where the row begins at one.
    rest: lanes of the tile that is left, 0 where there is none."""

    params: str
    wide: str
    rows: bool
    column: str
    extent: int
    start: str
    unit: int
    piece: int
    pieces: int
    rest: int
    held: tuple[Held, ...]
    counted: bool
    stages: tuple[PiecesStage, ...]
    pdl: bool


def pieces_launch(node: Reduce | Nest, form: RowForm, name: str, device: Device) -> Launch | None:
    """The launch of long rows; None where they are of no fixed length, or aligned and read once."""
    columns = {s.column for s in form.stages if s.column is not None}
    column = columns.pop() if len(columns) == 1 else None
    if column is None or column.extent.constant is None or column.extent.constant <= MAX_ROW:
        return None
    aligned, held = _aligned(form, column), _read_again(form, column)
    if aligned is None and not held:
        return None
    pieces = ONCE
    if len(held) * column.extent.constant > MOST_HELD:
        pieces, held = AGAIN, ()
    elif held:
        twice = column.extent.constant <= MOST_HELD_TWICE and _widened_apart(form, held)
        pieces = HELD_TWICE if twice else HELD
    return _Printer(TritonScope.of(node), form, column, aligned, pieces).launch(node, name, device, held)


def _aligned(form: RowForm, column: Var) -> Aligned | None:
    """Where the rows of most accesses begin, if that is anywhere."""
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
    return Aligned(start, column, unit)


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
    return sum(not _in_pairs(s, held) for s in readers) <= len(WIDENED)


def _in_pairs(stage: RowStage, held: tuple[Load, ...]) -> bool:
    """Whether all that a stage wants of a row of bfloat16 is its largest element: no element is widened for that."""
    node = stage.node
    return isinstance(node, Reduce) and all(f.op in ("max", "top") and element(f.value) in held for f in node.folds)


def _scales(form: RowForm) -> set[tuple[object, Index]]:
    """The values of a row that multiply weights of a softmax."""
    products = [element(s.value) for stage in form.stages if stage.column is not None for s in stage.node.stores]
    return {
        (e.args[1].buffer, e.args[1].index)
        for e in products
        if isinstance(e, Call) and e.op == "mul" and isinstance(e.args[0], Call) and e.args[0].op == "exp_weight"
        if isinstance(e.args[1], Load) and e.args[1].buffer in form.locals
    }  # fmt: skip


def element(value: Expr) -> Expr:
    """What is cast."""
    while isinstance(value, Call) and value.op == "cast":
        (value,) = value.args
    return value


class _Printer(RowPrinter):
    """Prints each stage twice: of a piece, whose lanes are all inside, and of the tile that is left."""

    def __init__(self, scope: TritonScope, form: RowForm, column: Var, aligned: Aligned | None, pieces: Pieces):
        super().__init__(scope, form, 1)
        length = column.extent.constant
        assert length is not None
        self.column, self.length = column, length
        self.piece, self.warps, self.registers = pieces.size, pieces.warps, pieces.registers
        self.aligned = aligned and replace(aligned, place=f"first + i * {self.piece} + lane")
        self.pieces = (length - (aligned.unit - 1 if aligned else 0)) // self.piece
        left = length - self.pieces * self.piece
        self.rest = power_of_two(left) if left else 0
        self.of_piece: dict[tuple[object, Index], Value] = {}
        self.of_rest: dict[tuple[object, Index], Value] = {}
        self.widenings = 0
        self.scales = _scales(form) if self.registers is not None else set()
        self.logarithms: dict[tuple[object, Index], str] = {}

    def launch(self, node: Reduce | Nest, name: str, device: Device, loads: tuple[Load, ...]) -> Launch:
        held = tuple(self.hold(load, f"held{i}") for i, load in enumerate(loads))
        stages = tuple(self.stage(stage, loads) for stage in self.form.stages)
        start = TritonEmitter(self.scope, self.places()).index(self.aligned.start) if self.aligned else ""
        view = RowPieces(
            "", self.wide, self.form.row is not None, self.column.name, self.length, start,
            self.aligned.unit if self.aligned else 0, self.piece, self.pieces, self.rest, held,
            self.counted([h.load for h in held]), tuple(replace(s, counted=self.counted(s.body)) for s in stages),
            device.pdl,
        )  # fmt: skip
        launch = finish("row_pieces.py.j2", view, self.scope, name, self.grid(), node, self.warps, device)
        kernel = replace(launch.kernel, widens=not held, maxnreg=self.registers)  # shorter accesses take longer
        return replace(launch, kernel=kernel)

    def counted(self, lines: Sequence[str]) -> bool:
        """Whether lines name the column."""
        return any(re.search(rf"\b{self.column.name}\b", line) for line in lines)

    def hold(self, load: Load, name: str) -> Held:
        compute, axes = DTYPES[load.buffer.dtype].compute, (self.column.name,)
        cast = "" if compute == load.buffer.dtype else f".to({TL_DTYPE[compute]})"
        held = Held(name, self.piece_emitter().element(load), self.rest_emitter().element(load) if self.rest else "")
        self.of_piece[(load.buffer, load.index)] = Value(f"{name}[i]{cast}", axes)
        self.of_rest[(load.buffer, load.index)] = Value(f"{name}_rest{cast}", axes)
        return held

    def piece_emitter(self) -> TritonEmitter:
        known = {**self.known, **self.of_piece}
        return TritonEmitter(
            self.scope, self.places(), {}, self.accs, known, stem=self.stem(), aligned=self.aligned,
            logarithms=self.logarithms,
        )  # fmt: skip

    def rest_emitter(self) -> TritonEmitter:
        name = self.column.name
        places = self.places() | {self.column: Place(f"{name}_rest", (name,))}
        known = {**self.known, **self.of_rest}
        inside = {name: f"{name}_inside"}
        return TritonEmitter(
            self.scope, places, inside, self.accs, known, stem=self.stem(), logarithms=self.logarithms
        )  # fmt: skip

    def stage(self, stage: RowStage, held: tuple[Load, ...]) -> PiecesStage:
        if stage.column is None:
            return PiecesStage((), (), (), self.last(stage))
        if self.registers is not None and any(held[0] in e.loads for e in stage.node.expressions()):
            if isinstance(stage.node, Reduce) and _in_pairs(stage, held):
                return self.largest(stage, stage.node, held[0])
            self.widen(held[0])
        if isinstance(stage.node, Reduce):
            return self.folds(stage, stage.node)
        parts = [self.piece_emitter(), *([self.rest_emitter()] if self.rest else [])]
        for emit in parts:
            emit.count_uses(s.value for s in stage.node.stores)
            for s in stage.node.stores:
                emit.store(s)
        return PiecesStage((), tuple(parts[0].lines), tuple(line for e in parts[1:] for line in e.lines), ())

    def widen(self, load: Load) -> None:
        """Gives the next stage its own way to widen what is held."""
        key = (load.buffer, load.index)
        self.of_piece[key] = Value(WIDENED[self.widenings].format(x="held0[i]"), (self.column.name,))
        self.widenings += 1

    def largest(self, stage: RowStage, node: Reduce, load: Load) -> PiecesStage:
        """The largest element of a row that is held, of two elements at once."""
        before, body, rest, after = [], [], [], []
        for fold in node.folds:
            form, acc = fold_form(fold), f"acc{len(self.accs)}"
            before.append(f"{acc} = tl.full(({self.piece},), {form.start}, tl.bfloat16)")
            body.append(f"{acc} = larger_of_pairs({acc}, held0[i])")
            found = self.across(form, f"{acc}.to(tl.float32)")
            if self.rest:
                value = self.of_rest[(load.buffer, load.index)].text
                rest.append(f"{acc}_rest = tl.where({self.column.name}_inside, {value}, {form.start})")
                found = form.join.format(a=found, x=self.across(form, f"{acc}_rest"))
            after.append(f"{acc} = {found}")
            self.acc(fold, acc)
        return PiecesStage(tuple(before), tuple(body), tuple(rest), (*after, *self.last(stage)))

    def folds(self, stage: RowStage, node: Reduce) -> PiecesStage:
        before: list[str] = []
        after: list[str] = []
        body, rest = self.piece_emitter(), self.rest_emitter()
        for emit in (body, rest):
            emit.count_uses(f.value for f in node.folds)
        for fold in node.folds:
            acc = f"acc{len(self.accs)}"
            (self.place if fold_form(fold).position else self.fold)(fold, acc, before, body, rest, after)
            self.acc(fold, acc)
        return PiecesStage(tuple(before), tuple(body.lines), tuple(rest.lines), (*after, *self.last(stage)))

    def fold(
        self, fold: Fold, acc: str, before: list[str], body: TritonEmitter, rest: TritonEmitter, after: list[str]
    ) -> None:
        form, truth, column = fold_form(fold), is_truth(fold), self.column
        tile = self.tile(body, fold.value, form, truth, column, self.piece, "")
        before.append(f"{acc} = tl.full(({self.piece},), {form.start}, {form.dtype})")
        body.lines.append(f"{acc} = {form.step.format(a=acc, x=tile)}")
        found = self.across(form, acc)
        if self.rest:
            rest.lines.append(f"{acc}_rest = {self.rest_tile(rest, fold, form)}")
            found = form.join.format(a=found, x=self.across(form, f"{acc}_rest"))
        after.append(f"{acc} = {f'({found}) != 0' if truth else found}")

    def place(
        self, fold: Fold, acc: str, before: list[str], body: TritonEmitter, rest: TritonEmitter, after: list[str]
    ) -> None:
        """Where an extremum is: a lane remembers where its best unit of a piece is, which is read again at the end."""
        form, column = fold_form(fold), self.column
        tile = self.tile(body, fold.value, form, is_truth(fold), column, self.piece, "")
        unit, head = ACCESS // DTYPES[element(fold.value).dtype].size, "head + " if self.aligned else ""
        units = self.piece // unit
        before.append(f"{acc}_value = tl.full(({units},), {form.start}, {form.dtype})")
        before.append(f"{acc} = tl.zeros(({units},), tl.int32)")
        across = form.across.format(a=f"tl.reshape({tile}, ({units}, {unit}))", axis=1, keep="")
        body.lines.append(f"{acc}_value, {acc} = {form.step}({acc}_value, {acc}, {across}, i * {self.piece})")
        found, near = self.across(form, f"{acc}_value"), f"{acc}_near"
        if self.rest:
            rest.lines.append(f"{acc}_rest = {self.rest_tile(rest, fold, form)}")
            found = form.join.format(a=found, x=self.across(form, f"{acc}_rest"))
        places = self.places() | {column: Place(near, (column.name,))}
        again = TritonEmitter(self.scope, places, {}, self.accs, self.known, stem=self.stem())
        value = again.value(fold.value)
        value = f"({value}).to(tl.int32)" if is_truth(fold) else value
        found_at = [f"tl.min(places_of({value}, {acc}_found, {near}), 0)"]
        if self.rest:
            found_at.append(f"tl.min(places_of({acc}_rest, {acc}_found, {column.name}_rest), 0)")
        after += [
            f"{acc}_found = {found}",
            f"{acc} = tl.min(places_of({acc}_value, {acc}_found, {acc} + {head}tl.arange(0, {units}) * {unit}), 0)",
            f"{near} = tl.minimum({acc}, {self.length - unit}) + tl.arange(0, {unit})",
            *again.lines,
            f"{acc} = {found_at[0] if len(found_at) == 1 else f'tl.minimum({found_at[0]}, {found_at[1]})'}",
        ]

    def rest_tile(self, rest: TritonEmitter, fold: Fold, form: FoldForm) -> str:
        inside = f"{self.column.name}_inside"
        return self.tile(rest, fold.value, form, is_truth(fold), self.column, self.rest, inside)

    def last(self, stage: RowStage) -> tuple[str, ...]:
        """Stores of one value for each row."""
        emit = TritonEmitter(self.scope, self.places(), {}, self.accs, self.known, stem=self.stem())
        emit.count_uses(s.value for s in stage.node.stores)
        for s in stage.node.stores:
            self.store(emit, s)
            if (scale := (s.buffer, s.index)) in self.scales:
                name = self.known[scale].text
                self.logarithms[scale] = f"{name}_log"
                emit.lines.append(f"{name}_log = tl.log2({name})")
        return tuple(emit.lines)
