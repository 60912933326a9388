"""Long rows of a fixed length as Triton kernels: whole pieces of a row, and a tile of what is left of it.

Rows whose length is no multiple of 16 bytes begin anywhere. Pieces begin at the first element of a row that is aligned,
so that they are read and written 16 bytes at a time; what lies in front of them goes with what lies behind. Rows that
are read more than once stay in registers if they fit:

    acc = max over the row                held = ()
                                          for i in tl.static_range(12):
                                              held += (tl.load(...),)
                                          acc = tl.full((4096,), -inf)
                                          for i in tl.static_range(12):
                                              acc = max(acc, held[i])
                                          acc = max(tl.max(acc), tl.max(rest))
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import ONE, ZERO, Index, Var, of
from ...ir.nodes import Fold, Nest, Reduce
from ...schedule.row_form import MAX_ROW, RowForm, RowStage
from .blocks import power_of_two
from .device import Device
from .emit_triton import Aligned, Place, TritonEmitter, Value
from .folds import fold_form, is_truth
from .kernel import TL_DTYPE, Launch
from .maps import finish
from .row_printer import RowPrinter
from .scope import TritonScope

#: bytes of one access
ACCESS = 16


@dataclass(frozen=True)
class Pieces:
    """Elements of a piece, and warps of a program. Measured on an H200 with rows of 50257 half-precision numbers."""

    size: int
    warps: int


#: of rows that registers hold (a program for each multiprocessor), that are read once, and again from L2 (two programs
#: for each multiprocessor, whose rows fill half of L2)
HELD, ONCE, AGAIN = Pieces(2048, 8), Pieces(1024, 4), Pieces(8192, 32)
#: elements that the registers of a program hold
MOST_HELD = 25 * HELD.size


@dataclass(frozen=True)
class Held:
    """What stays in registers: a tuple `name` of the pieces, and `name`_rest; load, rest: their texts."""

    name: str
    load: str
    rest: str


@dataclass(frozen=True)
class PiecesStage:
    """body: of a piece; rest: of the tile that is left; both empty in a stage of one value for each row."""

    before: tuple[str, ...]
    body: tuple[str, ...]
    rest: tuple[str, ...]
    after: tuple[str, ...]


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
    pieces = HELD if held else ONCE
    if len(held) * column.extent.constant > MOST_HELD:
        pieces, held = AGAIN, ()
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
    unit = ACCESS // min(sizes, default=ACCESS)
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


class _Printer(RowPrinter):
    """Prints each stage twice: of a piece, whose lanes are all inside, and of the tile that is left."""

    def __init__(self, scope: TritonScope, form: RowForm, column: Var, aligned: Aligned | None, pieces: Pieces):
        super().__init__(scope, form, 1)
        length = column.extent.constant
        assert length is not None
        self.column, self.length, self.aligned = column, length, aligned
        self.piece, self.warps = pieces.size, pieces.warps
        self.pieces = (length - (aligned.unit - 1 if aligned else 0)) // self.piece
        left = length - self.pieces * self.piece
        self.rest = power_of_two(left) if left else 0
        self.of_piece: dict[tuple[object, Index], Value] = {}
        self.of_rest: dict[tuple[object, Index], Value] = {}

    def launch(self, node: Reduce | Nest, name: str, device: Device, loads: tuple[Load, ...]) -> Launch:
        held = tuple(self.hold(load, f"held{i}") for i, load in enumerate(loads))
        stages = tuple(self.stage(stage) for stage in self.form.stages)
        start = TritonEmitter(self.scope, self.places()).index(self.aligned.start) if self.aligned else ""
        view = RowPieces(
            "", self.wide, self.form.row is not None, self.column.name, self.length, start,
            self.aligned.unit if self.aligned else 0, self.piece, self.pieces, self.rest, held, stages, device.pdl,
        )  # fmt: skip
        launch = finish("row_pieces.py.j2", view, self.scope, name, self.grid(), node, self.warps, device)
        return replace(launch, kernel=replace(launch.kernel, widens=not held))  # shorter accesses take longer

    def hold(self, load: Load, name: str) -> Held:
        compute, axes = DTYPES[load.buffer.dtype].compute, (self.column.name,)
        cast = "" if compute == load.buffer.dtype else f".to({TL_DTYPE[compute]})"
        held = Held(name, self.piece_emitter().element(load), self.rest_emitter().element(load) if self.rest else "")
        self.of_piece[(load.buffer, load.index)] = Value(f"{name}[i]{cast}", axes)
        self.of_rest[(load.buffer, load.index)] = Value(f"{name}_rest{cast}", axes)
        return held

    def piece_emitter(self) -> TritonEmitter:
        known = {**self.known, **self.of_piece}
        return TritonEmitter(self.scope, self.places(), {}, self.accs, known, stem=self.stem(), aligned=self.aligned)

    def rest_emitter(self) -> TritonEmitter:
        name = self.column.name
        places = self.places() | {self.column: Place(f"{name}_rest", (name,))}
        known = {**self.known, **self.of_rest}
        return TritonEmitter(self.scope, places, {name: f"{name}_inside"}, self.accs, known, stem=self.stem())

    def stage(self, stage: RowStage) -> PiecesStage:
        if stage.column is None:
            return PiecesStage((), (), (), self.last(stage))
        if isinstance(stage.node, Reduce):
            return self.folds(stage, stage.node)
        parts = [self.piece_emitter(), *([self.rest_emitter()] if self.rest else [])]
        for emit in parts:
            emit.count_uses(s.value for s in stage.node.stores)
            for s in stage.node.stores:
                emit.store(s)
        return PiecesStage((), tuple(parts[0].lines), tuple(line for e in parts[1:] for line in e.lines), ())

    def folds(self, stage: RowStage, node: Reduce) -> PiecesStage:
        before: list[str] = []
        after: list[str] = []
        body, rest = self.piece_emitter(), self.rest_emitter()
        for emit in (body, rest):
            emit.count_uses(f.value for f in node.folds)
        for fold in node.folds:
            acc = f"acc{len(self.accs)}"
            self.fold(fold, acc, before, body, rest, after)
            self.acc(fold, acc)
        return PiecesStage(tuple(before), tuple(body.lines), tuple(rest.lines), (*after, *self.last(stage)))

    def fold(
        self, fold: Fold, acc: str, before: list[str], body: TritonEmitter, rest: TritonEmitter, after: list[str]
    ) -> None:
        form, truth, column = fold_form(fold), is_truth(fold), self.column
        tile = self.tile(body, fold.value, form, truth, column, self.piece, "")
        values = f"{acc}_value" if form.position else acc
        before.append(f"{values} = tl.full(({self.piece},), {form.start}, {form.dtype})")
        if form.position:  # of a lane: where its piece begins
            before.append(f"{acc} = tl.zeros(({self.piece},), tl.int32)")
            body.lines.append(f"{values}, {acc} = {form.step}({values}, {acc}, {tile}, i * {self.piece})")
        else:
            body.lines.append(f"{acc} = {form.step.format(a=acc, x=tile)}")
        found = self.across(form, values)
        if self.rest:
            tile = self.tile(rest, fold.value, form, truth, column, self.rest, f"{column.name}_inside")
            rest.lines.append(f"{acc}_rest = {tile}")
            found = form.join.format(a=found, x=self.across(form, f"{acc}_rest"))
        if form.position:
            lane = "head + lane" if self.aligned else "lane"
            places = [f"tl.min(places_of({values}, {acc}_found, {acc} + {lane}), 0)"]
            if self.rest:
                places.append(f"tl.min(places_of({acc}_rest, {acc}_found, {column.name}_rest), 0)")
            after.append(f"{acc}_found = {found}")
            after.append(f"{acc} = {places[0] if len(places) == 1 else f'tl.minimum({places[0]}, {places[1]})'}")
        else:
            after.append(f"{acc} = {f'({found}) != 0' if truth else found}")

    def last(self, stage: RowStage) -> tuple[str, ...]:
        """Stores of one value for each row."""
        emit = TritonEmitter(self.scope, self.places(), {}, self.accs, self.known, stem=self.stem())
        emit.count_uses(s.value for s in stage.node.stores)
        for s in stage.node.stores:
            self.store(emit, s)
        return tuple(emit.lines)
