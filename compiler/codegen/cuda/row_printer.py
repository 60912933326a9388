"""What the kernels over rows have in common: how the stages of a row form are printed."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.buffers import Buffer
from ...ir.expr import Expr
from ...ir.index import ONE, Index, Var
from ...ir.nodes import Reduction, Store
from ...ir.ops import Precedence, Printed
from ...ir.plans.gpu import RowForm
from ...schedule.gpu.blocks import blocks, whole
from .emit import Axes, Place, TritonEmitter, Value
from .kernel import grid
from .reductions import ReductionForm, nothing
from .scope import TritonScope


class RowPrinter:
    """Prints the stages of a form for `rows` rows at once."""

    def __init__(self, scope: TritonScope, form: RowForm, rows: int = 1, several: bool = False):
        self.scope, self.form, self.rows, self.several = scope, form, rows, several
        self.axes: Axes = ("r", "c") if several else ("c",)
        extent = form.row.extent if form.row is not None else ONE
        self.count = extent
        self.masked = several and not whole(extent, rows)
        self.accs: dict[str, Value] = {}
        self.known: dict[tuple[object, Index], Value] = {}
        self.kept = 0
        self.stems = -1

    def places(self) -> dict[Var, Place]:
        found: dict[Var, Place] = {}
        if self.form.row is not None:
            found[self.form.row] = Place("row", ("r",) if self.several else ())
        for stage in self.form.stages:
            if stage.column is not None:
                found[stage.column] = Place(stage.column.name, (stage.column.name,))
        return found

    def masks(self, columns: Sequence[tuple[Var, bool]]) -> dict[str, str]:
        found = {"r": "row_inside"} if self.masked else {}
        return found | {v.name: f"{v.name}_inside" for v, masked in columns if masked}

    def shape(self, block: int) -> str:
        return f"({self.rows}, {block})" if self.several else f"({block},)"

    def tile(
        self, emit: TritonEmitter, e: Expr, form: ReductionForm, truth: bool, column: Var, block: int, inside: str
    ) -> str:
        """The values of a reduction as a full tile; outside of the mask `inside`, if there is one, is where the
        reduction starts."""
        printed = emit.printed(e)
        if truth:
            printed = Printed(f"({printed.text}).to(tl.int32)")
        wanted = {*(() if emit.places[column].counted else (column.name,)), *(("r",) if self.several else ())}
        if not wanted <= set(emit.axes(e)):
            tile = f"{nothing(self.shape(block), form.dtype)} + {printed.within(Precedence.SUM)}"
            printed = Printed(tile, Precedence.SUM)
        return f"tl.where({inside}, {printed.text}, {form.start})" if inside else printed.within(form.operand)

    def across(self, form: ReductionForm, tile: str) -> str:
        axis, keep = ("1", ", keep_dims=True") if self.several else ("0", "")
        return form.across.format(a=tile, axis=axis, keep=keep)

    def acc(self, reduction: Reduction, name: str) -> None:
        self.accs[reduction.acc.name] = Value(name, ("r",) if self.several else ())

    def store(self, emit: TritonEmitter, s: Store) -> None:
        """Stores what is not local; the value stays at hand."""
        local = s.buffer in self.form.locals
        if local or self.read_later(s.buffer):
            value = emit.kept(s.value, f"kept{self.kept}")
            self.kept += 1
            self.known[(s.buffer, s.index)] = value
            if not local:
                emit.put(s, value)
        else:
            emit.store(s)

    def read_later(self, buffer: Buffer) -> bool:
        return any(load.buffer is buffer for s in self.form.stages for e in s.node.expressions() for load in e.loads)

    def first(self, acc: str, form: ReductionForm, values: str, places: str) -> list[str]:
        """The smallest of the places at which a tile has its extremum."""
        axis, keep = ("1", ", keep_dims=True") if self.several else ("0", "")
        found = self.across(form, values)
        return [
            f"{acc}_found = {found}",
            f"{acc} = tl.min(places_of({values}, {acc}_found, {places}), {axis}{keep})",
        ]

    def stem(self) -> str:
        """A first letter for the names of another part of the kernel."""
        self.stems += 1
        return "tuvwabcdefgh"[self.stems] if self.stems < 12 else f"t{self.stems}_"

    def grid(self) -> tuple[Index, Index, Index]:
        return grid(blocks(self.count, self.rows))

    @property
    def wide(self) -> str:
        return ".to(tl.int64)" if self.scope.wide else ""
