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
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Load
from ...ir.index import Index, Var
from ...ir.nodes import Nest, Reduce, Reduction
from ...ir.plans.gpu import PiecesPlan, RowForm, RowsPlan, RowStage
from ...machine.gpu import ACCESS
from ...schedule.gpu.piece_plans import element
from .emit import Aligned, Place, TritonEmitter, Value
from .kernel import TL_DTYPE, Launch
from .maps import finish
from .reductions import ReductionForm, is_truth, reduction_form
from .row_printer import RowPrinter
from .scope import TritonScope

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


def pieces_launch(node: Reduce | Nest, form: RowForm, name: str, plan: RowsPlan, pieces: PiecesPlan) -> Launch:
    """The launch of long rows, cut into pieces."""
    (column,) = {s.column for s in form.stages if s.column is not None}
    return _Printer(TritonScope.of(node, plan), form, column, pieces).launch(node, name, plan)


class _Printer(RowPrinter):
    """Prints each stage twice: of a piece, whose lanes are all inside, and of the tile that is left."""

    def __init__(self, scope: TritonScope, form: RowForm, column: Var, pieces: PiecesPlan):
        super().__init__(scope, form)
        length = column.extent.constant
        assert length is not None
        self.column, self.length = column, length
        self.piece, self.plan, self.loads = pieces.size, pieces, pieces.held
        place = f"first + i * {self.piece} + lane"
        self.aligned = None if pieces.start is None else Aligned(pieces.start, column, pieces.unit, place)
        self.pieces, self.rest = pieces.count, pieces.rest
        self.of_piece: dict[tuple[object, Index], Value] = {}
        self.of_rest: dict[tuple[object, Index], Value] = {}
        self.scales = {(load.buffer, load.index) for load in pieces.scales}
        self.logarithms: dict[tuple[object, Index], str] = {}

    def launch(self, node: Reduce | Nest, name: str, plan: RowsPlan) -> Launch:
        held = tuple(self.hold(load, f"held{i}") for i, load in enumerate(self.loads))
        stages = tuple(self.stage(i, stage) for i, stage in enumerate(self.form.stages))
        start = TritonEmitter(self.scope, self.places()).index(self.aligned.start) if self.aligned else ""
        view = RowPieces(
            "", self.wide, self.form.row is not None, self.column.name, self.length, start,
            self.aligned.unit if self.aligned else 0, self.piece, self.pieces, self.rest, held,
            self.counted([h.load for h in held]), tuple(replace(s, counted=self.counted(s.body)) for s in stages),
            plan.pdl,
        )  # fmt: skip
        return finish("row_pieces.py.j2", view, self.scope, name, self.grid(), node, plan)

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

    def stage(self, number: int, stage: RowStage) -> PiecesStage:
        if stage.column is None:
            return PiecesStage((), (), (), self.last(stage))
        if number in self.plan.pairs and isinstance(stage.node, Reduce):
            return self.largest(stage, stage.node, self.loads[0])
        if self.plan.widenings and (way := self.plan.widenings[number]) is not None:
            self.widen(self.loads[0], way)
        if isinstance(stage.node, Reduce):
            return self.reductions(stage, stage.node)
        parts = [self.piece_emitter(), *([self.rest_emitter()] if self.rest else [])]
        for emit in parts:
            emit.count_uses(s.value for s in stage.node.stores)
            for s in stage.node.stores:
                emit.store(s)
        return PiecesStage((), tuple(parts[0].lines), tuple(line for e in parts[1:] for line in e.lines), ())

    def widen(self, load: Load, way: int) -> None:
        """Gives a stage its own way to widen what is held."""
        self.of_piece[load.buffer, load.index] = Value(WIDENED[way].format(x="held0[i]"), (self.column.name,))

    def largest(self, stage: RowStage, node: Reduce, load: Load) -> PiecesStage:
        """The largest element of a row that is held, of two elements at once."""
        before, body, rest, after = [], [], [], []
        for reduction in node.reductions:
            form, acc = reduction_form(reduction), f"acc{len(self.accs)}"
            before.append(f"{acc} = tl.full(({self.piece},), {form.start}, tl.bfloat16)")
            body.append(f"{acc} = larger_of_pairs({acc}, held0[i])")
            found = self.across(form, f"{acc}.to(tl.float32)")
            if self.rest:
                value = self.of_rest[(load.buffer, load.index)].text
                rest.append(f"{acc}_rest = tl.where({self.column.name}_inside, {value}, {form.start})")
                found = form.join.format(a=found, x=self.across(form, f"{acc}_rest"))
            after.append(f"{acc} = {found}")
            self.acc(reduction, acc)
        return PiecesStage(tuple(before), tuple(body), tuple(rest), (*after, *self.last(stage)))

    def reductions(self, stage: RowStage, node: Reduce) -> PiecesStage:
        before: list[str] = []
        after: list[str] = []
        body, rest = self.piece_emitter(), self.rest_emitter()
        for emit in (body, rest):
            emit.count_uses(f.value for f in node.reductions)
        for reduction in node.reductions:
            acc = f"acc{len(self.accs)}"
            (self.place if reduction_form(reduction).position else self.reduction)(
                reduction, acc, before, body, rest, after
            )
            self.acc(reduction, acc)
        return PiecesStage(tuple(before), tuple(body.lines), tuple(rest.lines), (*after, *self.last(stage)))

    def reduction(
        self,
        reduction: Reduction,
        acc: str,
        before: list[str],
        body: TritonEmitter,
        rest: TritonEmitter,
        after: list[str],
    ) -> None:
        form, truth, column = reduction_form(reduction), is_truth(reduction), self.column
        tile = self.tile(body, reduction.value, form, truth, column, self.piece, "")
        before.append(f"{acc} = tl.full(({self.piece},), {form.start}, {form.dtype})")
        body.lines.append(f"{acc} = {form.step.format(a=acc, x=tile)}")
        found = self.across(form, acc)
        if self.rest:
            rest.lines.append(f"{acc}_rest = {self.rest_tile(rest, reduction, form)}")
            found = form.join.format(a=found, x=self.across(form, f"{acc}_rest"))
        after.append(f"{acc} = {f'({found}) != 0' if truth else found}")

    def place(
        self,
        reduction: Reduction,
        acc: str,
        before: list[str],
        body: TritonEmitter,
        rest: TritonEmitter,
        after: list[str],
    ) -> None:
        """Where an extremum is: a lane remembers where its best unit of a piece is, which is read again at the end."""
        form, column = reduction_form(reduction), self.column
        tile = self.tile(body, reduction.value, form, is_truth(reduction), column, self.piece, "")
        unit, head = ACCESS // DTYPES[element(reduction.value).dtype].size, "head + " if self.aligned else ""
        units = self.piece // unit
        before.append(f"{acc}_value = tl.full(({units},), {form.start}, {form.dtype})")
        before.append(f"{acc} = tl.zeros(({units},), tl.int32)")
        across = form.across.format(a=f"tl.reshape({tile}, ({units}, {unit}))", axis=1, keep="")
        body.lines.append(f"{acc}_value, {acc} = {form.step}({acc}_value, {acc}, {across}, i * {self.piece})")
        found, near = self.across(form, f"{acc}_value"), f"{acc}_near"
        if self.rest:
            rest.lines.append(f"{acc}_rest = {self.rest_tile(rest, reduction, form)}")
            found = form.join.format(a=found, x=self.across(form, f"{acc}_rest"))
        places = self.places() | {column: Place(near, (column.name,))}
        again = TritonEmitter(self.scope, places, {}, self.accs, self.known, stem=self.stem())
        value = again.value(reduction.value)
        value = f"({value}).to(tl.int32)" if is_truth(reduction) else value
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

    def rest_tile(self, rest: TritonEmitter, reduction: Reduction, form: ReductionForm) -> str:
        inside = f"{self.column.name}_inside"
        return self.tile(rest, reduction.value, form, is_truth(reduction), self.column, self.rest, inside)

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
