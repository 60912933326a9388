"""Reductions and nests as Triton kernels: a program for some rows, which it holds in registers or walks through."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.bounds import largest
from ...ir.expr import Load
from ...ir.index import ONE, Index, Indirect, Var, as_index, of
from ...ir.nodes import Fold, Nest, Reduce
from ...machine.gpu import Device
from ...schedule.cost.estimates import number
from ...schedule.loops.row_form import RowForm, RowStage, row_form
from .blocks import MANY, power_of_two, share, warps_for, whole
from .emit import Place, TritonEmitter
from .kernel import Launch
from .maps import finish
from .matrix import divides
from .reductions import FoldForm, fold_form, is_truth
from .row_pieces import element, pieces_launch
from .row_printer import RowPrinter
from .scope import TritonScope

#: elements of a tile of several rows, and of a piece of a row that is walked through
TILE = 2048
PIECE = 4096


@dataclass(frozen=True)
class Share:
    """Elements of a program's tile, and of one of its threads."""

    tile: int
    each: int


FEW = Share(TILE, 8)
#: of MANY elements: rows that are only folded, so that their loads hide the time of the reductions; short ones with a
#: place to find in each; and rows that are written too. Measured on an H200 (docs/gpu-tiles.md)
FOLDED, PLACED, WRITTEN = Share(4096, 32), Share(4096, 16), Share(2048, 16)
#: steps that a lane takes by itself, and programs of 256 lanes that are enough for that
FEW_STEPS = 64
ENOUGH_LANES = 256
#: steps whose loads are all begun at once
UNROLLED = 16
#: elements of 16 bits of the units by which the place of an extremum is looked for, in MANY; and the longest row in
#: which they are looked at one by one
UNIT, SHORT = 8, 512
#: rows side by side in memory that a program takes, so that it reads whole lines; and where they are so many that each
#: multiprocessor has several programs
NEIGHBOURS, NEIGHBOURS_OF_MANY = 32, 64
SEVERAL = 3
#: pieces of neighbouring rows that are under way
AHEAD = 3


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
    rows: str
    masked: bool
    stages: tuple[WalkedStage, ...]
    pdl: bool


def rows_launch(node: Reduce | Nest, name: str, device: Device) -> Launch:
    """The launch of a reduction or a nest that has a row form (schedule.row_form)."""
    form = row_form(node)
    if form is None:
        raise ValueError(f"{name} has no row form")
    extent = form.row.extent if form.row is not None else ONE
    longest = max((_block(s.column) for s in form.stages if s.column is not None), default=1)
    across = isinstance(node, Reduce) and not _along_rows(form.stages[0])
    if across and longest <= FEW_STEPS and number(extent) >= ENOUGH_LANES * device.sms:
        # what is folded fits no vector, but neighbouring rows do: each lane takes the steps of its own row
        lanes = share(extent, device, 128, 1024)
        return _Printer(TritonScope.of(node), form, lanes).walked(node, name, device, piece=1)
    part = _share(form, extent, longest)
    at_once = _neighbours(extent, device) if across else _rows_at_once(extent, longest, part, device)
    rows = min(at_once, power_of_two(extent.constant or TILE))
    printer = _Printer(TritonScope.of(node), form, rows)
    if form.whole and rows * longest <= max(part.tile, longest):
        return printer.whole(node, name, device, part)
    if rows == 1 and not across and (launch := pieces_launch(node, form, name, device)) is not None:
        return launch
    piece = PIECE if rows == 1 else max(TILE // rows, 1)
    return printer.walked(node, name, device, piece)


def _in_keys(fold: Fold, block: int) -> bool:
    """Whether values and places of a fold fit into one integer: those of a row of bfloat16 as it lies in memory."""
    value = element(fold.value)
    return isinstance(value, Load) and value.dtype == "bf16" and block <= 1 << 16


def _in_units(fold: Fold, column: Var) -> bool:
    """Whether a fold finds a place among 16-bit elements as they lie in memory, whose units are aligned."""
    value = element(fold.value)
    if not isinstance(value, Load) or value.dtype not in ("f16", "bf16") or (column.extent.constant or 0) <= SHORT:
        return False
    start = value.index - of(column)
    return divides(UNIT, column.extent) and divides(UNIT, start) and column not in start.vars()


def _along_rows(stage: RowStage) -> bool:
    """Whether neighbours in the reduced dimension are neighbours in memory in most of what is folded."""
    node, column = stage.node, stage.column
    if not isinstance(node, Reduce) or column is None:
        return True
    loads = [load.index for f in node.folds for load in f.value.loads]
    side_by_side = sum(index.coefficient(column) == ONE for index in loads)
    across = sum(any(index.coefficient(v) == ONE for v in node.dims) for index in loads)
    return side_by_side >= max(across, 1)


def _share(form: RowForm, rows: Index, longest: int) -> Share:
    """What a program takes that holds rows in registers."""
    if not _many(rows, longest):
        return FEW
    if any(stage.column is not None and not isinstance(stage.node, Reduce) for stage in form.stages):
        return WRITTEN
    folds = [fold for stage in form.stages if isinstance(stage.node, Reduce) for fold in stage.node.folds]
    one_by_one = any(fold_form(fold).position and not _in_keys(fold, longest) for fold in folds)
    return PLACED if longest < SHORT and one_by_one else FOLDED


def _rows_at_once(rows: Index, longest: int, part: Share, device: Device) -> int:
    if part is FEW and longest >= 1024:
        return 1
    return share(rows, device, 1, max(part.tile // longest, 1))


def _neighbours(rows: Index, device: Device) -> int:
    return NEIGHBOURS_OF_MANY if number(rows) >= NEIGHBOURS_OF_MANY * device.sms * SEVERAL else NEIGHBOURS


def _many(rows: Index, longest: int) -> bool:
    return number(rows) * longest >= MANY


def _block(column: Var) -> int:
    """The power of two that holds a row; of a dynamic one, the longest."""
    top = column.extent.constant
    if top is None:
        top = largest(column.extent)
    return power_of_two(max(top, 1)) if top is not None else PIECE


class _Printer(RowPrinter):
    """Rows in registers, and rows that are walked through."""

    # rows in registers -----------------------------------------------------------------------------------------------
    def whole(self, node: Reduce | Nest, name: str, device: Device, part: Share) -> Launch:
        columns = list(dict.fromkeys(s.column for s in self.form.stages if s.column is not None))
        blocks_ = {v: _block(v) for v in columns}
        masked = {v: v.extent.constant != blocks_[v] for v in columns}
        emit = TritonEmitter(self.scope, self.places(), self.masks(list(masked.items())), self.accs, self.known)
        emit.count_uses(e for s in self.form.stages for e in s.node.expressions())
        early = self.load_weights(emit) if device.pdl else 0
        for stage in self.form.stages:
            if isinstance(stage.node, Reduce):
                for fold in stage.node.folds:
                    assert stage.column is not None
                    self.fold_whole(emit, fold, stage.column, blocks_[stage.column], masked[stage.column])
            for s in stage.node.stores:
                self.store(emit, s)
        plain = TritonEmitter(self.scope, {})
        views = tuple(ColumnView(v.name, blocks_[v], plain.index(v.extent), masked[v]) for v in columns)
        view = Rows(
            "", self.wide, self.rows, plain.index(self.count) if self.form.row is not None else "", self.masked, views,
            tuple(emit.lines[:early]), tuple(emit.lines[early:]), device.pdl,
        )  # fmt: skip
        warps = warps_for(self.rows * max(blocks_.values(), default=1), part.each)
        return finish("rows.py.j2", view, self.scope, name, self.grid(), node, warps, device)

    def load_weights(self, emit: TritonEmitter) -> int:
        """Loads weights in front of the wait for the kernel before, which does not write them; how many lines it is."""
        for stage in self.form.stages:
            for e in stage.node.expressions():
                for load in e.loads:
                    if load.buffer.kind == "const" and not any(isinstance(a, Indirect) for a in load.index.atoms()):
                        emit.load_early(load)
        return len(emit.lines)

    def fold_whole(self, emit: TritonEmitter, fold: Fold, column: Var, block: int, masked: bool) -> None:
        form, acc = fold_form(fold), f"acc{len(self.accs)}"
        inside = f"{column.name}_inside" if masked else ""
        if form.position and _many(self.count, block) and not masked and _in_keys(fold, block):
            self.place_by_keys(emit, fold, acc, column, block)
            self.acc(fold, acc)
            return
        if form.position and _many(self.count, block) and _in_units(fold, column):
            self.place_by_units(emit, fold, acc, column, block // UNIT, UNIT)
            self.acc(fold, acc)
            return
        tile = self.tile(emit, fold.value, form, is_truth(fold), column, block, inside)
        if form.position:
            emit.lines += [f"{acc}_tile = {tile}", *self.first(acc, form, f"{acc}_tile", column.name)]
        else:
            padded = inside and column.extent.constant is not None
            after = " != 0" if is_truth(fold) else "" if padded else form.whole
            emit.lines.append(f"{acc} = {self.across(form, tile)}{after}")
        self.acc(fold, acc)

    def place_by_keys(self, emit: TritonEmitter, fold: Fold, acc: str, column: Var, block: int) -> None:
        """The place of an extremum by one maximum of integers, which have the value in front of its place."""
        form = fold_form(fold)
        tile = self.tile(emit, fold.value, form, False, column, block, "")
        keys = f"keys_of({f'-({tile})' if fold.op == 'argmin' else tile}, {column.name})"
        axis, keep = ("1", ", keep_dims=True") if self.rows > 1 else ("0", "")
        emit.lines.append(f"{acc} = 65535 - (tl.max({keys}, {axis}{keep}) & 65535)")

    def place_by_units(self, emit: TritonEmitter, fold: Fold, acc: str, column: Var, units: int, unit: int) -> None:
        """The place of an extremum: the first unit of a row that has it, which is read again, and where it is there.

        Of an element there is one comparison, in its thread, instead of one and a search for its place.
        """
        form, many = fold_form(fold), self.rows > 1
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
        tile = first.value(fold.value)
        tile = f"tl.where({acc}_inside, {tile}, {form.start})" if masked else tile
        lines += [*first.lines, f"{acc}_units = {form.across.format(a=f'({tile})', axis=axis, keep='')}"]
        lanes = "[None, :]" if many else ""
        lines += self.first(acc, form, f"{acc}_units", f"{unit_of}{lanes} * {unit}")
        lines.append(f"{acc}_near = {acc} + tl.arange(0, {unit}){lanes}")
        near = self.places() | {column: Place(f"{acc}_near", (column.name,))}
        again = TritonEmitter(self.scope, near, {"r": "row_inside"} if self.masked else {}, stem=f"{acc}_b")
        value = again.value(fold.value)
        found = f"places_of({value}, {acc}_found, {acc}_near)"
        keep = "1, keep_dims=True" if many else "0"
        emit.lines += [*lines, *again.lines, f"{acc} = tl.min({found}, {keep})"]

    # rows walked through ---------------------------------------------------------------------------------------------
    def walked(self, node: Reduce | Nest, name: str, device: Device, piece: int) -> Launch:
        views = []
        for stage in self.form.stages:
            views.append(self.walked_stage(stage, piece))
        plain = TritonEmitter(self.scope, self.places())
        rows = plain.index(self.count) if self.form.row is not None else ""
        view = RowsWalked("", self.wide, self.rows, rows, self.masked, tuple(views), device.pdl)
        most = max(v.block for v in views) * self.rows
        each = 8 if piece == 1 else 16
        return finish("rows_walked.py.j2", view, self.scope, name, self.grid(), node, warps_for(most, each), device)

    def walked_stage(self, stage: RowStage, piece: int) -> WalkedStage:
        column, places = stage.column, self.places()
        if column is None:
            emit = TritonEmitter(self.scope, places, self.masks([]), self.accs, self.known, stem=self.stem())
            emit.count_uses(s.value for s in stage.node.stores)
            for s in stage.node.stores:
                self.store(emit, s)
            return WalkedStage((), "", "", 1, False, (), tuple(emit.lines))
        block = min(_block(column), piece)
        masked = not whole(column.extent, block)
        extent = TritonEmitter(self.scope, {}).index(column.extent)
        if block == 1:
            places[column] = Place(column.name, counted=True)
        unrolled = block == 1 and column.extent.constant is not None and column.extent.constant <= UNROLLED
        masks = self.masks([(column, masked)])
        body = TritonEmitter(self.scope, places, masks, self.accs, self.known, stem=self.stem())
        if not isinstance(stage.node, Reduce):
            body.count_uses(s.value for s in stage.node.stores)
            for s in stage.node.stores:
                body.store(s)
            return WalkedStage((), column.name, extent, block, masked, tuple(body.lines), (), unrolled)
        before: list[str] = []
        after: list[str] = []
        body.count_uses(f.value for f in stage.node.folds)
        for fold in stage.node.folds:
            form, acc = fold_form(fold), f"acc{len(self.accs)}"
            inside = f"{column.name}_inside" if masked else ""
            tile = self.tile(body, fold.value, form, is_truth(fold), column, block, inside)
            if form.position:
                self.walk_position(before, body.lines, after, acc, form, tile, column, block)
            else:
                before.append(f"{acc} = tl.full({self.shape(block)}, {form.start}, {form.dtype})")
                body.lines.append(f"{acc} = {form.step.format(a=acc, x=tile)}")
                folded = self.across(form, acc) if block > 1 else acc
                if folded != acc or is_truth(fold):
                    after.append(f"{acc} = {folded}{' != 0' if is_truth(fold) else ''}")
            self.acc(fold, acc)
        end = TritonEmitter(self.scope, places, self.masks([]), self.accs, self.known, stem=self.stem())
        end.count_uses(s.value for s in stage.node.stores)
        for s in stage.node.stores:
            self.store(end, s)
        lines = (*after, *end.lines)
        ahead = AHEAD if self.rows >= NEIGHBOURS_OF_MANY and block > 1 else 0
        return WalkedStage(tuple(before), column.name, extent, block, masked, tuple(body.lines), lines, unrolled, ahead)

    def walk_position(
        self, before: list[str], body: list[str], after: list[str], acc: str, form: FoldForm, tile: str, column: Var,
        block: int,
    ) -> None:  # fmt: skip
        shape, axes = self.shape(block), "[None, :]" if self.rows > 1 else ""
        before.append(f"{acc}_value = tl.full({shape}, {form.start}, {form.dtype})")
        first = f"tl.zeros({shape}, tl.int32)" + (f" + tl.arange(0, {block}){axes}" if block > 1 else "")
        before.append(f"{acc} = {first}")
        body.append(f"{acc}_value, {acc} = {form.step}({acc}_value, {acc}, {tile}, {column.name})")
        if block > 1:
            after += self.first(acc, form, f"{acc}_value", acc)
