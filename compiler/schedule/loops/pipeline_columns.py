"""Software pipelining of column blocks: a stage that needs whole columns of another stage runs one block later.

for block:                                              for step:
  high[:] = max_k x[block, k, :]                          for k:
  s[:] = sum_k exp(x[block, k, :] - high[:])     ->         y[step - 2, k, :] = exp(..) * s[:]                 stage 2
  for k: y[block, k, :] = exp(..) * s[:]                    s'[:] += exp(kept[k, :] - high[:])                 stage 1
                                                            kept[k, :] = x[step, k, :], high'[:] = max(.., ..)  stage 0

Memory is then read, processed and written at the same time. Operands of two pipeline stages are copied into a buffer by
the first, because the lines of a column block share a few sets of a cache. Results older than a block move to another
buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.expr import Call, Expr, Load, replaced
from ...ir.index import (
    ONE,
    Index,
    Var,
    product,
    row_major,
)
from ...ir.nodes import Map, Nest, Origin, Reduce, Store
from ...ir.rewrite import map_expressions, rename
from ...machine.cpu import WIDEST_LANES
from ...machine.cpu_loops import WORK
from ..cost.estimates import work
from ..graph import NodeGraph
from .collapse import collapse
from .vector_axis import reduces_whole, vector_loop

Stage = Map | Reduce


@dataclass(frozen=True)
class Part:
    """A stage and its pipeline stage. whole: it runs over all that is in the block (or row), not over its results
    alone."""

    stage: Stage
    pipeline_stage: int
    whole: bool


def pipeline_columns(graph: NodeGraph) -> None:
    """Gives the nests over blocks of columns their pipeline stages, where there is more than one."""
    for nest in list(graph.nodes):
        if isinstance(nest, Nest) and not nest.pipeline_stages:
            found = _pipelined(nest)
            if found is not None:
                graph.replace(nest, found)


def has_stages(stages: Sequence[Stage], rows: tuple[Var, ...]) -> bool:
    """Whether a nest of these stages can be pipelined."""
    return _parts(stages, rows) is not None


def _pipelined(nest: Nest) -> Nest | None:
    parts = _parts(nest.stages, nest.dims)
    if parts is None:
        return None
    parts, kept = _kept_loads(parts, nest.dims)
    row, column = _loops(parts)
    return in_stages(nest, parts, kept, (row, column), (column,))


def in_stages(
    nest: Nest, parts: list[Part], kept: Sequence[Buffer], whole: tuple[Var, ...], results: tuple[Var, ...]
) -> Nest:
    """The nest with the pipeline stages of its parts. kept: buffers that they have made their own; whole, results: the
    loops of stages over all of a block, and over its results alone."""
    locals_ = [*nest.locals, *kept]
    for buffer in tuple(locals_):
        maker = next(p for p in parts if buffer in p.stage.writes())
        loops = whole if maker.whole and isinstance(maker.stage, Map) else results
        parts, older = _passed_on(parts, nest.dims, buffer, maker.pipeline_stage, loops, loops == whole)
        locals_ += older
    parts = sorted(parts, key=lambda p: p.pipeline_stage)  # stable: stages of a phase stay in their order
    return replace(
        nest,
        stages=tuple(p.stage for p in parts),
        pipeline_stages=tuple(p.pipeline_stage for p in parts),
        locals=tuple(locals_),
    )


def _parts(stages: Sequence[Stage], rows: tuple[Var, ...]) -> list[Part] | None:
    """The stages with their pipeline stages, all over one loop of rows and one of columns; None: they have no such
    form."""
    stages = [collapse(s, keep=len(rows), spare=1) for s in stages]
    loops = [_row_loop(s, rows) for s in stages]
    found = [v for v in loops if isinstance(v, Var)]
    if None in loops or not found or any(v.extent != found[0].extent for v in found):
        return None
    column = stages[0].dims[-1]
    fits = column.extent.constant is not None and found[0].extent.constant is not None
    if not fits or (column.extent.constant or 1) % WIDEST_LANES or any(s.dims[-1] is not column for s in stages):
        return None
    parts = parts_of(stages, loops)
    return parts if parts is not None and worth_stages(parts) else None


def parts_of(stages: Sequence[Stage], loops: Sequence[Var | bool | None]) -> list[Part] | None:
    """The stages with their pipeline stages, their own loops over all of a block under the name of the first one."""
    name = next(v for v in loops if isinstance(v, Var))
    parts: list[Part] = []
    for stage, loop in zip(stages, loops, strict=True):
        whole = isinstance(loop, Var)
        renamed = with_loop(stage, loop, name) if isinstance(loop, Var) else stage
        pipeline_stage = _phase(renamed, whole, parts)
        if pipeline_stage is None:
            return None
        parts.append(Part(renamed, pipeline_stage, whole))
    return parts


def _row_loop(stage: Stage, rows: tuple[Var, ...]) -> Var | bool | None:
    """The loop over the rows of a block; False: the stage is for its columns alone; None: it has another form."""
    inner = stage.dims[len(rows) :]
    if isinstance(stage, Reduce):
        fits = len(inner) == 1 and len(stage.rdims) == 1 and vector_loop(stage) is inner[0]
        return stage.rdims[0] if fits and not reduces_whole(stage) else None
    if not inner or any(s.index.coefficient(inner[-1]) != ONE for s in stage.stores):
        return None
    return inner[0] if len(inner) == 2 else False if len(inner) == 1 else None


def with_loop(stage: Stage, own: Var, row: Var) -> Stage:
    """The stage with one of its loops under another's name."""
    return rename(stage, {own: row})


def _phase(stage: Stage, whole: bool, before: Sequence[Part]) -> int | None:
    """The first pipeline stage in which all that the stage reads is there; None: it reads other elements than its
    own."""
    made = {s.buffer: (p, s.index) for p in before for s in p.stage.stores}
    pipeline_stage = 0
    for load in _loads(stage):
        if load.buffer not in made:
            continue
        maker, index = made[load.buffer]
        by_row = maker.whole and isinstance(maker.stage, Map)
        if load.index != index or (by_row and not whole):
            return None
        pipeline_stage = max(pipeline_stage, maker.pipeline_stage + (1 if whole and not by_row else 0))
    return pipeline_stage


def _loads(stage: Stage) -> list[Load]:
    return [ld for e in stage.expressions() for ld in e.loads]


def worth_stages(parts: Sequence[Part]) -> bool:
    """A later pipeline stage writes to memory or computes for long; short sums of what lies in the cache cost less in
    turn."""
    later = [p for p in parts if p.pipeline_stage and p.whole]
    stored = any(s.buffer.kind != "local" for p in later if isinstance(p.stage, Map) for s in p.stage.stores)
    return stored or long_work(later)


def long_work(parts: Sequence[Part]) -> bool:
    """Whether a part computes for long upon each element."""
    return any(sum(map(work, _of_a_row(p.stage))) >= WORK.long for p in parts if p.whole)


def _of_a_row(stage: Stage) -> list[Expr]:
    """What is computed for each row of a block."""
    return [f.value for f in stage.reductions] if isinstance(stage, Reduce) else [s.value for s in stage.stores]


# what is kept --------------------------------------------------------------------------------------------------------
def _kept_loads(parts: list[Part], rows: tuple[Var, ...]) -> tuple[list[Part], list[Buffer]]:
    """What several pipeline stages read of the same elements of memory is kept by the first of them."""
    row, column = _loops(parts)
    asked = {value: pipeline_stages for value, pipeline_stages in read_of_memory(parts, column) if row in value.vars()}
    return keep_values(parts, rows, (row, column), asked)


def read_of_memory(parts: Sequence[Part], lane: Var) -> Iterator[tuple[Expr, set[int]]]:
    """What whole stages read along the lanes of memory that none of them makes, and their pipeline stages."""
    made = {b for p in parts for b in p.stage.writes()}
    pipeline_stages: dict[Expr, set[int]] = {}
    for part in parts:
        for e in part.stage.expressions() if part.whole else ():
            for value, load in _widened(e):
                if load.index.coefficient(lane) == ONE and load.buffer not in made:
                    pipeline_stages.setdefault(value, set()).add(part.pipeline_stage)
    yield from pipeline_stages.items()


def keep_values(
    parts: list[Part], rows: tuple[Var, ...], loops: tuple[Var, ...], pipeline_stages: Mapping[Expr, set[int]]
) -> tuple[list[Part], list[Buffer]]:
    """The parts with a buffer for each value that more than one of their pipeline stages asks for."""
    kept: list[Buffer] = []
    for value, asked in pipeline_stages.items():
        if len(asked) > 1:
            buffer, first = Buffer(f"kept{len(kept)}", value.dtype, _size(*loops), "local"), min(asked)
            again = Load(buffer, row_major(loops))
            parts = [_reading(p, value, again) if p.pipeline_stage > first and p.whole else p for p in parts]
            parts.append(_copy(rows, loops, buffer, value, first, True))
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


def _passed_on(
    parts: list[Part], rows: tuple[Var, ...], buffer: Buffer, made: int, loops: tuple[Var, ...], whole: bool
) -> tuple[list[Part], list[Buffer]]:
    """A buffer holds one block: pipeline stages that read it more than one behind its maker, in pipeline stage `made`,
    read a copy."""
    size, place = _size(*loops), row_major(loops)
    last = max((p.pipeline_stage for p in parts if buffer in p.stage.reads()), default=0)
    older: list[Buffer] = []
    for pipeline_stage in range(made + 1, last):
        source = older[-1] if older else buffer
        older.append(Buffer(f"{buffer.name}_older", buffer.dtype, size, "local"))
        behind, load, again = pipeline_stage + 1, Load(source, place), Load(older[-1], place)
        parts = [_reading(p, load, again) if p.pipeline_stage >= behind else p for p in parts]
        parts.append(_copy(rows, loops, older[-1], load, pipeline_stage, whole))
    return parts, older


def _loops(parts: Sequence[Part]) -> tuple[Var, Var]:
    stage = next(p.stage for p in parts if isinstance(p.stage, Reduce))
    return stage.rdims[0], stage.dims[-1]


def _copy(
    rows: tuple[Var, ...], loops: tuple[Var, ...], to: Buffer, value: Expr, pipeline_stage: int, whole: bool
) -> Part:
    return Part(Map((*rows, *loops), (Store(to, row_major(loops), value),), Origin()), pipeline_stage, whole)


def _reading(part: Part, old: Expr, new: Load) -> Part:
    return replace(part, stage=map_expressions(part.stage, lambda e: replaced(e, old, new)))


def _size(*loops: Var) -> Index:
    return product(v.extent for v in loops)
