"""Software pipelining of rows: a stage that needs the reduction of a whole row runs one row later.

for row:                                            for step:
  high = max_k x[row, k]                              for k:
  s = sum_k exp(x[row, k] - high)          ->           y[step - 2, k] = t[k] * s                       stage 2
  for k: y[row, k] = exp(..) * s                        t[k] = exp(x[step - 1, k] - high), s' += t[k]   stage 1
                                                        high' = max(high', x[step, k])                  stage 0

Memory is then read, processed and written at the same time, and no row waits for the end of its own reduction. The form
is that of pipelined column blocks (loops/pipeline_columns.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, Load
from ...ir.index import Indirect, Var
from ...ir.nodes import Nest, Reduce
from ...machine.cpu_loops import ROW_LOOPS
from ..graph import NodeGraph
from .collapse import collapse
from .pipeline_columns import (
    Part,
    Stage,
    in_stages,
    keep_values,
    long_work,
    parts_of,
    read_of_memory,
    worth_stages,
)
from .transpose_rows import transposed_rows
from .vector_axis import reduces_whole, vector_loop


def pipeline_rows(graph: NodeGraph) -> None:
    """Gives the nests whose lanes run along their rows their pipeline stages, where there is more than one."""
    for nest in list(graph.nodes):
        if isinstance(nest, Nest) and not nest.pipeline_stages and nest.dims:
            found = _pipelined(nest) if transposed_rows(nest) is None else None
            if found is not None:
                graph.replace(nest, found)


def _pipelined(nest: Nest) -> Nest | None:
    written = [b for s in nest.stages for b in s.writes()]
    stages = [collapse(s, keep=len(nest.dims)) for s in nest.stages]
    loops = [_loop(s, nest.dims) for s in stages]
    found = [v for v in loops if isinstance(v, Var)]
    if None in loops or not found or len(set(written)) < len(written):
        return None
    lane = found[0]
    if any(v.extent != lane.extent for v in found) or (lane.extent.constant or 0) > ROW_LOOPS.pipelined:
        return None
    parts = parts_of(stages, loops)
    halves = {} if parts is None else _halves(parts, lane)
    short = (lane.extent.constant or ROW_LOOPS.pipelined) <= ROW_LOOPS.short
    if parts is None or not worth_stages(parts) or not (short or halves or long_work(parts)):
        return None
    parts, kept = keep_values(parts, nest.dims, (lane,), halves)
    return in_stages(nest, parts, kept, (lane,), ())


def _loop(stage: Stage, rows: tuple[Var, ...]) -> Var | bool | None:
    """The loop along a row; False: the stage is one value for each row; None: it has another form."""
    inner = stage.dims[len(rows) :]
    if isinstance(stage, Reduce):
        fits = not inner and len(stage.rdims) == 1 and not reduces_whole(stage)
        loop = stage.rdims[0] if fits else None
    else:
        loop = inner[0] if len(inner) == 1 else None
        if not inner:
            return False
    if loop is None or vector_loop(stage) is not loop or _looks_up(stage, loop):
        return None
    return loop


def _looks_up(stage: Stage, lane: Var) -> bool:
    """Whether elements along the lanes lie at places that are read from memory."""
    atoms = (a for e in stage.expressions() for ld in e.loads for a in ld.index.atoms() if isinstance(a, Indirect))
    return any(lane in a.value.vars() for a in atoms if isinstance(a.value, Expr))


def _halves(parts: Sequence[Part], lane: Var) -> dict[Expr, set[int]]:
    """What the pipeline stages read as 16 bits, of a row of its own, and which of them: to be widened once."""
    found = read_of_memory(parts, lane)
    return {
        e: pipeline_stages
        for e, pipeline_stages in found
        if isinstance(e, Call) and _half(e.args[0]) and len(e.vars()) > 1
    }


def _half(e: Expr) -> bool:
    return isinstance(e, Load) and DTYPES[e.dtype].size == 2 and DTYPES[e.dtype].kind == "f"
