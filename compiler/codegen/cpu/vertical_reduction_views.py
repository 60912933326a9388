"""Views of reductions in which every lane folds for itself: windows side by side, few rows of memory.

Short rows of memory are folded in their order, all vectors of a row in registers:

    for v  for k  acc[v] += x[k*C + v*W ..]      ->      for k  for v  acc[v] += x[k*C + v*W ..]

Windows that lie one behind the other are read as the vectors that they fill:

    for k:2  for p:2  acc += x[k*C + 2*i + p]    ->      for k:2  for e:2  acc[e] += x[k*C + 2*i + e*W ..]
                                                         and the neighbours of acc[0], acc[1] are added
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Expr, IndexValue, Load, rewrite
from ...ir.index import ONE, ZERO, Var, of, product
from ...ir.lanes import depends
from ...ir.nodes import Fold, Reduce
from ...schedule.loops.streams import in_memory, widest
from .bound_tightening import trim
from .emit import Emitter
from .prefetch import fetches, stream_ahead
from .reduction_views import acc_names, folded_view, loops_of
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loops import Loop
from .views.reductions import FoldView, LaneFold, Neighbours

#: turns of short loops that are written out
MOST_TURNS = 16
#: elements of rows that are folded in their order, and turns that are worth it
LEAST_STRIP, MOST_STRIP, STRIP_TURNS = 16, 64, 4
#: elements of a row that is a stream of windows
LONG_ROW = 4096
#: long rows that are many, and bytes that each of them is fetched ahead
LEAST_PLANES, PLANES_AHEAD = 6, 1024
#: rows of memory that lie further apart than so many of their length are no stream
APART = 2
#: elements of windows that are read as whole vectors
NEIGHBOURS = (2, 4, 8)


def lane_fold_view(node: Reduce, vector: Var | None, loops: tuple[Loop, ...], scope: Scope) -> LaneFold:
    turns = written_out(node.rdims)
    node = trim(node, vector)
    if any(isinstance(f.value, Call) and f.value.op == "where" for f in node.folds):
        turns = (0,) * len(turns)  # a choice in each turn is long
    inside = loops_of(node.rdims, scope, Emitter(scope, None))
    strips = vector is not None and _in_order(node, vector, scope)
    outer = inside if strips else tuple(replace(loop, most=n) for loop, n in zip(inside, turns, strict=True))
    names = acc_names(node)
    if vector is not None:
        scope.loop(vector)
    full, part = Emitter(scope, vector), Emitter(scope, vector, part=True)
    for e in (full, part):
        e.count_uses(f.value for f in node.folds)
    folds = [folded_view(f, names[f.acc.name], full, part) for f in node.folds]
    moving = frozenset(f.acc.name for f in node.folds) if vector is not None else frozenset()
    end, end_part = (Emitter(scope, vector, p, names, moving) for p in (False, True))
    emit_stores(end, node)
    emit_stores(end_part, node)
    lanes = lanes_view(vector, scope, end, end_part) if vector is not None else None
    planes = _planes_ahead(node, vector, scope) if vector is not None and not strips else ()
    neighbours = _neighbours(node, vector, outer, names, scope) if vector is not None and not strips else None
    aligned = any(s.buffer in scope.streamed for s in node.stores)
    twice = {b.root for b in node.reads()}.isdisjoint(b.root for b in node.writes())  # an element may be computed so
    return LaneFold(
        loops,
        outer,
        lanes,
        tuple(folds),
        tuple(full.pre),
        (*planes, *full.body),
        tuple(part.body),
        (*end.pre, *end.body) if vector is None else (),
        strips=strips,
        neighbours=neighbours,
        overlaps=neighbours is not None and not aligned and twice,
        fetched=_ahead(node, vector, strips, scope) if vector is not None and not planes else (),
    )


def _ahead(node: Reduce, vector: Var, strips: bool, scope: Scope) -> tuple[str, ...]:
    """Fetches of what follows in memory on rows that are read in order, or on windows of a long row."""
    values = [f.value for f in node.folds]
    if strips:
        return stream_ahead(scope, vector, values, node.rdims[-1], node.dims)
    if (vector.extent.constant or 0) < LONG_ROW or len(node.rdims) != 1:
        return ()
    return stream_ahead(scope, vector, values, vector, (vector,), {node.rdims[0]: ZERO})


def _planes_ahead(node: Reduce, vector: Var, scope: Scope) -> tuple[str, ...]:
    """Fetches of what follows on each of many long rows that are folded together; of sums the hardware does."""
    values = [f.value for f in node.folds]
    if len(node.rdims) != 1 or all(f.op == "sum" for f in node.folds) or (vector.extent.constant or 0) < LONG_ROW:
        return ()
    (row,) = node.rdims
    loads = [load for v in values for load in v.loads]
    steps = [load.index.coefficient(row) or ZERO for load in loads]
    apart = min((step.constant or 0 for step in steps), default=0)
    if (row.extent.constant or 0) < LEAST_PLANES or apart < LONG_ROW or not all(map(in_memory, loads)):
        return ()
    return fetches(scope, vector, values, (row,), {vector: of(vector) + PLANES_AHEAD // widest(values)})


def written_out(loops: Sequence[Var]) -> tuple[int, ...]:
    """The turns of the loops that are written out, the innermost first; 0 for the others."""
    turns: list[int] = []
    total = 1
    for v in reversed(loops):
        total *= v.extent.constant or MOST_TURNS + 1
        turns.insert(0, v.extent.constant or 0 if total <= MOST_TURNS else 0)
    return tuple(turns)


def _in_order(node: Reduce, vector: Var, scope: Scope) -> bool:
    """Whether the turns of the last reduced loop are rows of memory, one behind the other, that fill few vectors."""
    if any(b in scope.locals for b in node.reads()):
        return False  # it lies in the first cache, in any order
    length, turns = vector.extent.constant or 0, product(v.extent for v in node.rdims).constant
    if not LEAST_STRIP <= length <= MOST_STRIP or not node.rdims or (turns or STRIP_TURNS) < STRIP_TURNS:
        return False
    loads = [ld for f in node.folds for ld in f.value.loads if depends(ld.index, vector)]
    steps = [ld.index.coefficient(node.rdims[-1]) for ld in loads]
    near = all(s is not None and length <= (s.constant or 0) <= APART * length for s in steps)
    return bool(loads) and near and all(ld.index.coefficient(vector) == ONE for ld in loads)


def _neighbours(
    node: Reduce, vector: Var, outer: Sequence[Loop], names: dict[str, str], scope: Scope
) -> Neighbours | None:
    """The folds over windows that are whole vectors of memory; None: they are not."""
    tap = next((v for v in node.rdims if all(_side_by_side(f, vector, v) for f in node.folds)), None)
    if tap is None:
        return None
    each = tap.extent.constant or 0
    flat = Var(f"{vector.name}_flat", vector.extent * each)
    lane = scope.loop(flat)
    emitter = Emitter(scope, flat)
    values = [_flat(f.value, vector, tap, flat) for f in node.folds]
    emitter.count_uses(values)
    folds = [replace(f, value=v) for f, v in zip(node.folds, values, strict=True)]
    views: list[FoldView] = [folded_view(f, names[f.acc.name], emitter) for f in folds]
    others = tuple(loop for loop, v in zip(outer, node.rdims, strict=True) if v is not tap)
    return Neighbours(each, lane, others, tuple(views), tuple(emitter.pre), tuple(emitter.body))


def _side_by_side(fold: Fold, vector: Var, tap: Var) -> bool:
    """Whether the fold's windows along `tap` lie one behind the other, and each is read whole."""
    if tap.extent.constant not in NEIGHBOURS or DTYPES[fold.value.dtype].compute != "f32":
        return False
    if any(isinstance(e, IndexValue) or (isinstance(e, Call) and e.op == "where") for e in fold.value.walk()):
        return False
    loads = fold.value.loads
    return bool(loads) and all(
        ld.index.coefficient(vector) == tap.extent and ld.index.coefficient(tap) == ONE for ld in loads
    )


def _flat(value: Expr, vector: Var, tap: Var, flat: Var) -> Expr:
    """The value with the lanes along all elements of all windows."""

    def at(e: Expr) -> Expr | None:
        return Load(e.buffer, e.index.without(vector).without(tap) + of(flat)) if isinstance(e, Load) else None

    return rewrite(value, at)
