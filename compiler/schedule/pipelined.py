"""Software pipelining of blocks of columns: a stage that needs whole columns of another one runs a block behind it.

for block:                                              for step:
  high[:] = max_k x[block, k, :]                          for k:
  s[:] = sum_k exp(x[block, k, :] - high[:])     ->         y[step - 2, k, :] = exp(..) * s[:]                 phase 2
  for k: y[block, k, :] = exp(..) * s[:]                    s'[:] += exp(kept[k, :] - high[:])                 phase 1
                                                            kept[k, :] = x[step, k, :], high'[:] = max(.., ..)  phase 0

So memory is read, computed upon and written at the same time. What two phases read of memory is kept from the first to
the second, for blocks of columns are spread over few sets of a cache; what is older than a block is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..ir.expr import Call, Expr, Load, replaced, substitute
from ..ir.index import ONE, Atom, Index, Var, of, product
from ..ir.nodes import Buffer, Map, Nest, Origin, Reduce, Store
from .collapse import collapse
from .cost import work
from .graph import NodeGraph, map_expressions
from .loops import SCALAR_FOLDS, vector_loop

#: columns of a block are whole vectors of any target
LANES = 16
#: work on an element beside which its way through memory is short
LONG_WORK = 12

Stage = Map | Reduce


@dataclass(frozen=True)
class _Part:
    """A stage and its phase. whole: it runs over the rows of the block, not over its columns alone."""

    stage: Stage
    phase: int
    whole: bool


def pipeline_columns(graph: NodeGraph) -> None:
    """Gives the nests over blocks of columns their phases, where there is more than one."""
    for nest in list(graph.nodes):
        if isinstance(nest, Nest):
            found = _pipelined(nest)
            if found is not None:
                graph.replace(nest, found)


def has_phases(stages: Sequence[Stage], rows: tuple[Var, ...]) -> bool:
    """Whether a nest of these stages can be pipelined."""
    return _parts(stages, rows) is not None


def _pipelined(nest: Nest) -> Nest | None:
    parts = _parts(nest.stages, nest.dims)
    if parts is None:
        return None
    parts, kept = _kept_loads(parts, nest.dims)
    locals_ = [*nest.locals, *kept]
    for buffer in tuple(locals_):
        parts, older = _passed_on(parts, nest.dims, buffer)
        locals_ += older
    parts = sorted(parts, key=lambda p: p.phase)  # stable: stages of a phase stay in their order
    return replace(
        nest, stages=tuple(p.stage for p in parts), phases=tuple(p.phase for p in parts), locals=tuple(locals_)
    )


def _parts(stages: Sequence[Stage], rows: tuple[Var, ...]) -> list[_Part] | None:
    """The stages with their phases, all over one loop of rows and one of columns; None: they have no such form."""
    stages = [collapse(s, keep=len(rows), spare=1) for s in stages]
    loops = [_row_loop(s, rows) for s in stages]
    found = [v for v in loops if isinstance(v, Var)]
    if None in loops or not found or any(v.extent != found[0].extent for v in found):
        return None
    column = stages[0].dims[-1]
    fits = column.extent.constant is not None and found[0].extent.constant is not None
    if not fits or (column.extent.constant or 1) % LANES or any(s.dims[-1] is not column for s in stages):
        return None
    parts: list[_Part] = []
    for stage, loop in zip(stages, loops, strict=True):
        whole = isinstance(loop, Var)
        renamed = _with_row(stage, loop, found[0]) if isinstance(loop, Var) else stage
        phase = _phase(renamed, whole, parts)
        if phase is None:
            return None
        parts.append(_Part(renamed, phase, whole))
    return parts if _worth(parts) else None


def _row_loop(stage: Stage, rows: tuple[Var, ...]) -> Var | bool | None:
    """The loop over the rows of a block; False: the stage is for its columns alone; None: it has another form."""
    inner = stage.dims[len(rows) :]
    if isinstance(stage, Reduce):
        fits = len(inner) == 1 and len(stage.rdims) == 1 and vector_loop(stage) is inner[0]
        return stage.rdims[0] if fits and not any(f.op in SCALAR_FOLDS for f in stage.folds) else None
    if not inner or any(s.index.coefficient(inner[-1]) != ONE for s in stage.stores):
        return None
    return inner[0] if len(inner) == 2 else False if len(inner) == 1 else None


def _with_row(stage: Stage, own: Var, row: Var) -> Stage:
    names: dict[Atom, Index] = {own: of(row)}
    changed = map_expressions(stage, lambda e: substitute(e, names), lambda i: i.substitute(names))
    if isinstance(changed, Reduce):
        return replace(changed, rdims=(row,))
    return replace(changed, dims=tuple(row if v is own else v for v in changed.dims))


def _phase(stage: Stage, whole: bool, before: Sequence[_Part]) -> int | None:
    """The first phase in which all that the stage reads is there; None: it reads other elements than its own."""
    made = {s.buffer: (p, s.index) for p in before for s in p.stage.stores}
    phase = 0
    for load in _loads(stage):
        if load.buffer not in made:
            continue
        maker, index = made[load.buffer]
        by_row = maker.whole and isinstance(maker.stage, Map)
        if load.index != index or (by_row and not whole):
            return None
        phase = max(phase, maker.phase + (1 if whole and not by_row else 0))
    return phase


def _loads(stage: Stage) -> list[Load]:
    return [ld for e in stage.expressions() for ld in e.loads]


def _worth(parts: Sequence[_Part]) -> bool:
    """A later phase writes to memory or computes for long; short sums of what lies in the cache cost less in turn."""
    later = [p.stage for p in parts if p.phase and p.whole]
    stored = any(s.buffer.kind != "local" for m in later if isinstance(m, Map) for s in m.stores)
    return stored or any(sum(map(work, _of_a_row(stage))) >= LONG_WORK for stage in later)


def _of_a_row(stage: Stage) -> list[Expr]:
    """What is computed for each row of a block."""
    return [f.value for f in stage.folds] if isinstance(stage, Reduce) else [s.value for s in stage.stores]


# what is kept --------------------------------------------------------------------------------------------------------
def _kept_loads(parts: list[_Part], rows: tuple[Var, ...]) -> tuple[list[_Part], list[Buffer]]:
    """What several phases read of the same elements of memory is kept by the first of them."""
    made = {b for p in parts for b in p.stage.writes()}
    row, column = _loops(parts)
    phases: dict[Expr, set[int]] = {}
    for part in parts:
        for e in part.stage.expressions() if part.whole else ():
            for value, load in _widened(e):
                dense = load.index.coefficient(column) == ONE and row in load.index.vars()
                if dense and load.buffer not in made:
                    phases.setdefault(value, set()).add(part.phase)
    kept: list[Buffer] = []
    for value, asked in phases.items():
        if len(asked) > 1:
            buffer, first = Buffer(f"kept{len(kept)}", value.dtype, _size(row, column), "local"), min(asked)
            again = Load(buffer, _place(row, column))
            parts = [_reading(p, value, again) if p.phase > first and p.whole else p for p in parts]
            parts.append(_copy(rows, (row, column), buffer, value, first))
            kept.append(buffer)
    return parts, kept


def _widened(e: Expr) -> Iterator[tuple[Expr, Load]]:
    """The loads of an expression, each in the type that it is read for."""
    if isinstance(e, Load):
        yield e, e
    elif isinstance(e, Call) and e.op == "cast" and isinstance(e.args[0], Load):
        yield e, e.args[0]
    elif isinstance(e, Call):
        for a in e.args:
            yield from _widened(a)


def _passed_on(parts: list[_Part], rows: tuple[Var, ...], buffer: Buffer) -> tuple[list[_Part], list[Buffer]]:
    """A buffer holds one block: phases that read it more than one block behind its maker read a copy."""
    maker = next(p for p in parts if buffer in p.stage.writes())
    loops = _loops(parts) if maker.whole and isinstance(maker.stage, Map) else (_loops(parts)[1],)
    size, place = _size(*loops), _place(*loops)
    last = max((p.phase for p in parts if buffer in p.stage.reads()), default=0)
    older: list[Buffer] = []
    for phase in range(maker.phase + 1, last):
        source = older[-1] if older else buffer
        older.append(Buffer(f"{buffer.name}_older", buffer.dtype, size, "local"))
        behind, load, again = phase + 1, Load(source, place), Load(older[-1], place)
        parts = [_reading(p, load, again) if p.phase >= behind else p for p in parts]
        parts.append(_copy(rows, loops, older[-1], load, phase))
    return parts, older


def _loops(parts: Sequence[_Part]) -> tuple[Var, Var]:
    stage = next(p.stage for p in parts if isinstance(p.stage, Reduce))
    return stage.rdims[0], stage.dims[-1]


def _copy(rows: tuple[Var, ...], loops: tuple[Var, ...], to: Buffer, value: Expr, phase: int) -> _Part:
    return _Part(Map((*rows, *loops), (Store(to, _place(*loops), value),), Origin()), phase, len(loops) > 1)


def _reading(part: _Part, old: Expr, new: Load) -> _Part:
    return replace(part, stage=map_expressions(part.stage, lambda e: replaced(e, old, new)))


def _size(*loops: Var) -> Index:
    return product(v.extent for v in loops)


def _place(*loops: Var) -> Index:
    place = of(loops[-1])
    for v in loops[:-1]:
        place = place + of(v) * loops[-1].extent
    return place
