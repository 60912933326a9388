"""Transpose for SIMD across rows: blocks of short rows are transposed in registers, so that each lane has a row.

for i:I                                          for b:I/B
  m = max_k x[i, k]            k:N                 t[k, :] = x[b*B + :, k]            transposed       k:N, :B
  y[i, k] = f(x[i, k], m)      k:N       ->        m[:] = max_k t[k, :]
                                                   u[k, :] = f(t[k, :], m[:])
                                                   y[b*B + :, k] = u[k, :]            transposed back

No vector is partly filled, no reduction crosses lanes, and scalar work of a row is done for a vector of rows. The last
block may have fewer rows; its tiles have the full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load, rewrite, substitute
from ...ir.in_place import overwrites
from ...ir.index import (
    ONE,
    ZERO,
    Atom,
    Index,
    Indirect,
    Var,
    as_index,
    minimum,
    of,
    product,
)
from ...ir.nodes import Map, Nest, Reduce, Store
from ...ir.plans.loop import Transpose, TransposedRows
from ...ir.rewrite import map_expressions
from ...machine.cpu import LINE, WIDEST_LANES
from ...machine.cpu_loops import TRANSPOSES
from ..cost.estimates import is_long
from .collapse import collapse
from .column_blocks import last_as_one
from .pipeline_columns import with_loop
from .vector_axis import SCALAR_REDUCTIONS, keeps_indices, reduces_contiguous

Stage = Map | Reduce


def transposed_rows(node: Reduce | Nest) -> TransposedRows | None:
    """A reduction or nest over short rows of memory, in blocks; None: it is no such, or better as it is."""
    if (isinstance(node, Nest) and node.pipeline_stages) or overwrites(node):
        return None
    found = _rows(node)
    if found is None:
        return None
    stages, rows, element = found
    count = product(v.extent for v in rows).constant
    few = count is not None and count < TRANSPOSES.many
    if few or (len(rows) > 1 and (rows[-1].extent.constant or 0) < TRANSPOSES.last) or not _worth(stages, element):
        return None
    return _Transposing(node, rows, element).result(stages)


def _rows(node: Reduce | Nest) -> tuple[tuple[Stage, ...], tuple[Var, ...], Var] | None:
    """The stages, their rows as few loops, and the loop over a row, which all have in common."""
    stages: tuple[Stage, ...] = node.stages if isinstance(node, Nest) else (node,)
    rows = node.dims
    stages = tuple(collapse(s, keep=len(rows)) for s in stages)
    merged: tuple[tuple[Stage, ...], tuple[Var, ...]] | None = (stages, rows)
    while merged is not None:
        stages, rows = merged
        merged = last_as_one(stages, rows)
    loops = [_loop(s, rows) for s in stages]
    found = [v for v in loops if isinstance(v, Var)]
    if not rows or None in loops or not found or any(v.extent != found[0].extent for v in found):
        return None
    if not all(reduces_contiguous(s) for s in stages if isinstance(s, Reduce) and not _searches(s)):
        return None
    renamed = (with_loop(s, v, found[0]) if isinstance(v, Var) else s for s, v in zip(stages, loops, strict=True))
    return tuple(renamed), rows, found[0]


def _loop(stage: Stage, rows: tuple[Var, ...]) -> Var | bool | None:
    """The loop along a row; False: the stage is one value for each row; None: it has another form."""
    inner = stage.dims[len(rows) :]
    if isinstance(stage, Reduce):
        return stage.rdims[0] if not inner and len(stage.rdims) == 1 else None
    return False if not inner else inner[0] if len(inner) == 1 else None


def _searches(stage: Stage) -> bool:
    return isinstance(stage, Reduce) and keeps_indices(stage)


def _worth(stages: Sequence[Stage], element: Var) -> bool:
    """Whether turning the rows costs less than what it saves."""
    length = element.extent.constant or 0
    reductions = [f for s in stages if isinstance(s, Reduce) for f in s.reductions]
    ends = [s.value for stage in stages if element not in stage.dims for s in stage.stores]
    inside = [
        *(f.value for f in reductions),
        *(s.value for stage in stages if element in stage.dims for s in stage.stores),
    ]
    written = any(s.buffer.kind != "local" for stage in stages if element in stage.dims for s in stage.stores)
    saved = sum(TRANSPOSES.search if f.op in SCALAR_REDUCTIONS else TRANSPOSES.reduction for f in reductions)
    saved += TRANSPOSES.function * sum(map(is_long, ends))
    saved += TRANSPOSES.tail if length % WIDEST_LANES and any(map(is_long, inside)) else 0
    return length >= TRANSPOSES.row and length * (TRANSPOSES.both_ways if written else TRANSPOSES.one_way) < saved


class _Transposing:
    """Moves the stages of one node into blocks."""

    def __init__(self, node: Reduce | Nest, rows: tuple[Var, ...], element: Var) -> None:
        self.row, self.element = rows[-1], element
        self.outer = rows[:-1]
        self.length = element.extent
        self.made = frozenset(node.writes())
        self.own = node.locals if isinstance(node, Nest) else ()
        self.tiles: dict[Load, Buffer] = {}
        self.written: dict[Store, Buffer] = {}
        self.locals: dict[Buffer, Buffer] = {}

    def result(self, stages: Sequence[Stage]) -> TransposedRows | None:
        loads = list(dict.fromkeys(ld for s in stages for e in s.expressions() for ld in e.loads))
        stores = [s for stage in stages for s in stage.stores]
        transposed = [ld for ld in loads if self._is_transposed(ld)]
        fits = all(ld in transposed or self._beside(ld) for ld in loads) and all(map(self._stored, stores))
        if not transposed or not fits:
            return None
        back = [s for s in stores if s.buffer not in self.own and self.element in s.index.vars()]
        buffers = [*(ld.buffer for ld in transposed), *(s.buffer for s in back)]
        self.rows = max(WIDEST_LANES, *(LINE // DTYPES[b.dtype].size for b in buffers))
        block = Var(f"{self.row.name}_block", (self.row.extent + (self.rows - 1)) // self.rows)
        whole = Var(self.row.name, as_index(self.rows))
        valid = minimum(as_index(self.rows), self.row.extent - of(block) * self.rows)
        count = self.row.extent.constant
        some = whole if count is not None and count % self.rows == 0 else Var(f"{self.row.name}_valid", valid)
        self.first: dict[Atom, Index] = {self.row: of(block) * self.rows, self.element: ZERO}
        reads = tuple(self._transpose(ld.buffer, ld.index, f"tile{i}") for i, ld in enumerate(transposed))
        self.tiles = {ld: t.tile for ld, t in zip(transposed, reads, strict=True)}
        writes = tuple(self._transpose(s.buffer, s.index, f"transposed{i}") for i, s in enumerate(back))
        self.written = {s: t.tile for s, t in zip(back, writes, strict=True)}
        for buffer in self.own:
            self.locals[buffer] = Buffer(buffer.name, buffer.dtype, buffer.size * self.rows, "local")
        moved = []
        for stage in stages:
            lane = whole if not self._touches_rows(stage) else some
            moved.append((self._moved(stage, block, lane), lane))
        locals_ = (*self.tiles.values(), *self.written.values(), *self.locals.values())
        return TransposedRows(
            (*self.outer, block), self.element, self.rows, some.extent, reads, tuple(moved), writes, locals_
        )

    # what fits ---------------------------------------------------------------------------------------------------
    def _is_transposed(self, load: Load) -> bool:
        """Rows of neighbours in memory."""
        pitch = load.index.coefficient(self.row)
        known = pitch is not None and (pitch.constant or 0) >= (self.length.constant or 0)
        plain = load.buffer not in self.own and not _looks_up(load.index)
        return plain and known and load.index.coefficient(self.element) == ONE and load.buffer not in self.made

    def _beside(self, load: Load) -> bool:
        """What the same place of all rows has in common, or a value of each row; or a local value."""
        if load.buffer in self.own:
            return self._local(load.index, load.buffer)
        step = load.index.coefficient(self.row)
        alike = step is not None and (not step.terms or (step == ONE and self.element not in load.index.vars()))
        return alike and not _looks_up(load.index) and load.buffer not in self.made

    def _stored(self, store: Store) -> bool:
        if store.buffer in self.own:
            return self._local(store.index, store.buffer)
        step = store.index.coefficient(self.row)
        if self.element in store.index.vars():
            return step == self.length and store.index.coefficient(self.element) == ONE
        return step == ONE

    def _local(self, index: Index, buffer: Buffer) -> bool:
        return index == ZERO if buffer.size == ONE else index == of(self.element) and buffer.size == self.length

    def _touches_rows(self, stage: Stage) -> bool:
        """Whether the stage reads or writes memory row by row, but for what is transposed."""
        places = [(s.buffer, s.index) for s in stage.stores if s not in self.written]
        loads = (ld for e in stage.expressions() for ld in e.loads if ld not in self.tiles)
        places += [(ld.buffer, ld.index) for ld in loads]
        return any(buffer not in self.own and self.row in index.vars() for buffer, index in places)

    # what it becomes ---------------------------------------------------------------------------------------------
    def _transpose(self, buffer: Buffer, index: Index, name: str) -> Transpose:
        size = (self.length + LINE // DTYPES[buffer.dtype].size) * self.rows  # the last vector of elements is whole
        tile = Buffer(name, buffer.dtype, size, "local")
        steps = [(index.coefficient(v) or ZERO).constant or 0 for v in self.outer]
        onward = all(step >= (self.length.constant or 0) for step in steps)
        return Transpose(buffer, tile, index.substitute(self.first), index.coefficient(self.row) or ZERO, onward)

    def _moved(self, stage: Stage, block: Var, lane: Var) -> Stage:
        across = of(self.element) * self.rows + of(lane)
        places: dict[Atom, Index] = {self.row: of(block) * self.rows + of(lane)}

        def leaf(e: Expr) -> Expr | None:
            if not isinstance(e, Load):
                return None
            if e in self.tiles:
                return Load(self.tiles[e], across)
            if e.buffer in self.own:
                return Load(self.locals[e.buffer], of(lane) if e.buffer.size == ONE else across)
            return None

        def stored(s: Store) -> Store:
            value = substitute(rewrite(s.value, leaf), places)
            if s in self.written:
                return Store(self.written[s], across, value)
            if s.buffer in self.own:
                return Store(self.locals[s.buffer], of(lane) if s.buffer.size == ONE else across, value)
            return Store(s.buffer, s.index.substitute(places), value)

        stores = tuple(stored(s) for s in stage.stores)
        inside = map_expressions(stage, lambda e: substitute(rewrite(e, leaf), places), lambda i: i)
        loops = (self.element,) if isinstance(stage, Map) and self.element in stage.dims else ()
        return replace(inside, dims=(*self.outer, block, *loops, lane), stores=stores)


def _looks_up(index: Index) -> bool:
    return any(isinstance(a, Indirect) for a in index.atoms())
