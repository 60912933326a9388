"""Reductions and nests as Triton kernels: a program for some rows, which it holds in registers or walks through."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.index import Var, as_index
from ...ir.nodes import Nest, Reduce, Reduction
from ...ir.plans.gpu import RowsPlan, RowStage
from ...schedule.gpu.blocks import whole
from .emit import Place, TritonEmitter
from .kernel import Launch
from .maps import finish
from .reductions import ReductionForm, is_truth, reduction_form
from .row_pieces import pieces_launch
from .row_printer import RowPrinter
from .scope import TritonScope


@dataclass(frozen=True)
class ColumnView:
    name: str
    block: int
    extent: str
    masked: bool


@dataclass(frozen=True)
class Rows:
    params: str
    wide: str
    block_rows: int
    several: bool
    rows: str
    masked: bool
    columns: tuple[ColumnView, ...]
    early: tuple[str, ...]
    body: tuple[str, ...]
    pdl: bool


@dataclass(frozen=True)
class WalkedStage:
    before: tuple[str, ...]
    column: str
    extent: str
    block: int
    counted: bool  # the column is one number
    masked: bool
    body: tuple[str, ...]
    after: tuple[str, ...]
    unrolled: bool = False
    ahead: int = 0  # pieces that are under way, where it is more than the one at hand


@dataclass(frozen=True)
class RowsWalked:
    params: str
    wide: str
    block_rows: int
    several: bool
    rows: str
    masked: bool
    stages: tuple[WalkedStage, ...]
    pdl: bool


def rows_launch(node: Reduce | Nest, name: str, plan: RowsPlan) -> Launch:
    """The launch of a reduction or a nest, in the row form of its plan."""
    form = plan.stages_of_rows
    if plan.pieces is not None:
        return pieces_launch(node, form, name, plan, plan.pieces)
    printer = _Printer(TritonScope.of(node, plan), form, plan.rows, plan.several)
    return printer.whole(node, name, plan) if plan.form == "held" else printer.walked(node, name, plan)


class _Printer(RowPrinter):
    """Rows in registers, and rows that are walked through."""

    # rows in registers -----------------------------------------------------------------------------------------------
    def whole(self, node: Reduce | Nest, name: str, plan: RowsPlan) -> Launch:
        stages = zip(self.form.stages, plan.blocks, strict=True)
        blocks_ = {s.column: block for s, block in stages if s.column is not None}
        columns, places = list(blocks_), iter(plan.places)
        masked = {v: v.extent.constant != blocks_[v] for v in columns}
        emit = TritonEmitter(self.scope, self.places(), self.masks(list(masked.items())), self.accs, self.known)
        emit.count_uses(e for s in self.form.stages for e in s.node.expressions())
        for load in plan.early:
            emit.load_early(load)
        early = len(emit.lines)
        for stage in self.form.stages:
            if isinstance(stage.node, Reduce):
                for reduction in stage.node.reductions:
                    assert stage.column is not None
                    column = stage.column
                    place = next(places, "tile")
                    self.reduce_whole(emit, reduction, column, blocks_[column], masked[column], place, plan.unit)
            for s in stage.node.stores:
                self.store(emit, s)
        plain = TritonEmitter(self.scope, {})
        views = tuple(ColumnView(v.name, blocks_[v], plain.index(v.extent), masked[v]) for v in columns)
        rows = plain.index(self.count) if self.form.row is not None else ""
        view = Rows(
            "", self.wide, self.rows, self.several, rows, self.masked, views, tuple(emit.lines[:early]),
            tuple(emit.lines[early:]), plan.pdl,
        )  # fmt: skip
        return finish("rows.py.j2", view, self.scope, name, self.grid(), node, plan)

    def reduce_whole(
        self, emit: TritonEmitter, reduction: Reduction, column: Var, block: int, masked: bool, place: str, unit: int
    ) -> None:
        form, acc = reduction_form(reduction), f"acc{len(self.accs)}"
        inside = f"{column.name}_inside" if masked else ""
        if form.position and place == "keys":
            self.index_by_keys(emit, reduction, acc, column, block)
            self.acc(reduction, acc)
            return
        if form.position and place == "units":
            self.index_by_units(emit, reduction, acc, column, block // unit, unit)
            self.acc(reduction, acc)
            return
        tile = self.tile(emit, reduction.value, form, is_truth(reduction), column, block, inside)
        if form.position:
            emit.lines += [f"{acc}_tile = {tile}", *self.first(acc, form, f"{acc}_tile", column.name)]
        else:
            padded = inside and column.extent.constant is not None
            after = " != 0" if is_truth(reduction) else "" if padded else form.whole
            emit.lines.append(f"{acc} = {self.across(form, tile)}{after}")
        self.acc(reduction, acc)

    def index_by_keys(self, emit: TritonEmitter, reduction: Reduction, acc: str, column: Var, block: int) -> None:
        """The place of an extremum by one maximum of integers, which have the value in front of its place."""
        form = reduction_form(reduction)
        tile = self.tile(emit, reduction.value, form, False, column, block, "")
        keys = f"keys_of({f'-({tile})' if reduction.op == 'argmin' else tile}, {column.name})"
        axis, keep = ("1", ", keep_dims=True") if self.several else ("0", "")
        emit.lines.append(f"{acc} = 65535 - (tl.max({keys}, {axis}{keep}) & 65535)")

    def index_by_units(
        self, emit: TritonEmitter, reduction: Reduction, acc: str, column: Var, units: int, unit: int
    ) -> None:
        """The place of an extremum: the first unit of a row that has it, which is read again, and where it is there.

        Of an element there is one comparison, in its thread, instead of one and a search for its place.
        """
        form, many = reduction_form(reduction), self.several
        start, last, axis = ("[None, :, None]", "[None, None, :]", 2) if many else ("[:, None]", "[None, :]", 1)
        masked = column.extent != as_index(units * unit)
        row = {self.form.row: Place("row[:, :, None]", ("r",))} if many and self.form.row is not None else {}
        masks = {"r": "row_inside[:, :, None]"} if self.masked else {}
        unit_of = f"tl.arange(0, {units})"
        lines = [f"{acc}_at = {unit_of}{start} * {unit} + tl.arange(0, {unit}){last}"]
        if masked:
            lines.append(f"{acc}_inside = {acc}_at < {column.extent}")
            masks[column.name] = f"{acc}_inside"
        places = self.places() | row | {column: Place(f"{acc}_at", (column.name,))}
        first = TritonEmitter(self.scope, places, masks, stem=f"{acc}_a")
        tile = first.value(reduction.value)
        tile = f"tl.where({acc}_inside, {tile}, {form.start})" if masked else tile
        lines += [*first.lines, f"{acc}_units = {form.across.format(a=f'({tile})', axis=axis, keep='')}"]
        lanes = "[None, :]" if many else ""
        lines += self.first(acc, form, f"{acc}_units", f"{unit_of}{lanes} * {unit}")
        lines.append(f"{acc}_near = {acc} + tl.arange(0, {unit}){lanes}")
        near = self.places() | {column: Place(f"{acc}_near", (column.name,))}
        again = TritonEmitter(self.scope, near, {"r": "row_inside"} if self.masked else {}, stem=f"{acc}_b")
        value = again.value(reduction.value)
        found = f"places_of({value}, {acc}_found, {acc}_near)"
        keep = "1, keep_dims=True" if many else "0"
        emit.lines += [*lines, *again.lines, f"{acc} = tl.min({found}, {keep})"]

    # rows walked through ---------------------------------------------------------------------------------------------
    def walked(self, node: Reduce | Nest, name: str, plan: RowsPlan) -> Launch:
        stages, none = self.form.stages, len(self.form.stages)
        unrolled, ahead = plan.unrolled or (False,) * none, plan.ahead or (0,) * none
        views = []
        parts = zip(stages, plan.blocks, plan.counted, unrolled, ahead, strict=True)
        for stage, block, counted, at_once, under_way in parts:
            walked = self.walked_stage(stage, block, counted)
            views.append(replace(walked, unrolled=at_once, ahead=under_way))
        plain = TritonEmitter(self.scope, self.places())
        count = plain.index(self.count) if self.form.row is not None else ""
        view = RowsWalked("", self.wide, self.rows, self.several, count, self.masked, tuple(views), plan.pdl)
        return finish("rows_in_blocks.py.j2", view, self.scope, name, self.grid(), node, plan)

    def walked_stage(self, stage: RowStage, block: int, counted: bool) -> WalkedStage:
        column, places = stage.column, self.places()
        if column is None:
            emit = TritonEmitter(self.scope, places, self.masks([]), self.accs, self.known, stem=self.stem())
            emit.count_uses(s.value for s in stage.node.stores)
            for s in stage.node.stores:
                self.store(emit, s)
            return WalkedStage((), "", "", block, counted, False, (), tuple(emit.lines))
        masked = not whole(column.extent, block)
        extent = TritonEmitter(self.scope, {}).index(column.extent)
        if counted:
            places[column] = Place(column.name, counted=True)
        masks = self.masks([(column, masked)])
        body = TritonEmitter(self.scope, places, masks, self.accs, self.known, stem=self.stem())
        if not isinstance(stage.node, Reduce):
            body.count_uses(s.value for s in stage.node.stores)
            for s in stage.node.stores:
                body.store(s)
            return WalkedStage((), column.name, extent, block, counted, masked, tuple(body.lines), ())
        before: list[str] = []
        after: list[str] = []
        body.count_uses(f.value for f in stage.node.reductions)
        for reduction in stage.node.reductions:
            form, acc = reduction_form(reduction), f"acc{len(self.accs)}"
            inside = f"{column.name}_inside" if masked else ""
            tile = self.tile(body, reduction.value, form, is_truth(reduction), column, block, inside)
            if form.position:
                self.walk_position(before, body.lines, after, acc, form, tile, column, block, counted)
            else:
                before.append(f"{acc} = tl.full({self.shape(block)}, {form.start}, {form.dtype})")
                body.lines.append(f"{acc} = {form.step.format(a=acc, x=tile)}")
                reduced = self.across(form, acc) if not counted else acc
                if reduced != acc or is_truth(reduction):
                    after.append(f"{acc} = {reduced}{' != 0' if is_truth(reduction) else ''}")
            self.acc(reduction, acc)
        end = TritonEmitter(self.scope, places, self.masks([]), self.accs, self.known, stem=self.stem())
        end.count_uses(s.value for s in stage.node.stores)
        for s in stage.node.stores:
            self.store(end, s)
        lines = (*after, *end.lines)
        return WalkedStage(tuple(before), column.name, extent, block, counted, masked, tuple(body.lines), lines)

    def walk_position(
        self, before: list[str], body: list[str], after: list[str], acc: str, form: ReductionForm, tile: str,
        column: Var, block: int, counted: bool,
    ) -> None:  # fmt: skip
        shape, axes = self.shape(block), "[None, :]" if self.several else ""
        before.append(f"{acc}_value = tl.full({shape}, {form.start}, {form.dtype})")
        first = f"tl.zeros({shape}, tl.int32)" + (f" + tl.arange(0, {block}){axes}" if not counted else "")
        before.append(f"{acc} = {first}")
        body.append(f"{acc}_value, {acc} = {form.step}({acc}_value, {acc}, {tile}, {column.name})")
        if not counted:
            after += self.first(acc, form, f"{acc}_value", acc)
