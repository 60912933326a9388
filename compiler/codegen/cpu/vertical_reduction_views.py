"""Views of reductions in which every lane reduces for itself: windows side by side, few rows of memory.

Short rows of memory are reduced in their order, all vectors of a row in registers:

    for v  for k  acc[v] += x[k*C + v*W ..]      ->      for k  for v  acc[v] += x[k*C + v*W ..]

Windows that lie one behind the other are read as the vectors that they fill:

    for k:2  for p:2  acc += x[k*C + 2*i + p]    ->      for k:2  for e:2  acc[e] += x[k*C + 2*i + e*W ..]
                                                         and the neighbours of acc[0], acc[1] are added
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import Expr, Load, rewrite
from ...ir.index import Var, of
from ...ir.plans.loop import VerticalPlan
from .emit import Emitter
from .prefetch import prefetch_lines
from .reduction_views import acc_names, loops_of, printed_reduction
from .scope import Scope
from .statements import emit_stores, lanes_view
from .views.loops import Loop
from .views.reductions import Neighbours, ReductionView, VerticalReduction


def vertical_reduction_view(
    plan: VerticalPlan, vector: Var | None, loops: tuple[Loop, ...], scope: Scope
) -> VerticalReduction:
    """The view of a reduction in which every lane reduces for itself; vector: the loop along the lanes."""
    node, strips = plan.inside, plan.strips
    inside = loops_of(node.rdims, scope, Emitter(scope, None))
    outer = inside if strips else tuple(replace(loop, most=n) for loop, n in zip(inside, plan.unroll, strict=True))
    names = acc_names(node)
    if vector is not None:
        scope.loop(vector)
    main, tail = Emitter(scope, vector), Emitter(scope, vector, tail=True)
    for e in (main, tail):
        e.count_uses(f.value for f in node.reductions)
    reductions = [printed_reduction(f, names[f.acc.name], main, tail) for f in node.reductions]
    moving = frozenset(f.acc.name for f in node.reductions) if vector is not None else frozenset()
    end, end_tail = (Emitter(scope, vector, p, names, moving) for p in (False, True))
    emit_stores(end, node)
    emit_stores(end_tail, node)
    lanes = lanes_view(vector, scope, end, end_tail) if vector is not None else None
    planes = prefetch_lines(plan.planes, vector, scope) if vector is not None else ()
    neighbours = _neighbours(plan, vector, outer, names, scope) if vector is not None else None
    aligned = any(s.buffer in scope.streamed for s in node.stores)
    twice = {b.root for b in node.reads()}.isdisjoint(b.root for b in node.writes())  # an element may be computed so
    return VerticalReduction(
        loops,
        outer,
        lanes,
        tuple(reductions),
        tuple(main.pre),
        (*planes, *main.body),
        tuple(tail.body),
        (*end.pre, *end.body) if vector is None else (),
        strips=strips,
        neighbours=neighbours,
        overlaps=neighbours is not None and not aligned and twice,
        fetched=prefetch_lines(plan.stream, vector, scope) if vector is not None else (),
    )


def _neighbours(
    plan: VerticalPlan, vector: Var, outer: Sequence[Loop], names: dict[str, str], scope: Scope
) -> Neighbours | None:
    """The reductions over windows that are whole vectors of memory; None: they are not."""
    if plan.neighbours is None:
        return None
    node, tap = plan.inside, plan.inside.rdims[plan.neighbours]
    each = tap.extent.constant or 0
    flat = Var(f"{vector.name}_flat", vector.extent * each)
    lane = scope.loop(flat)
    emitter = Emitter(scope, flat)
    values = [_flat(f.value, vector, tap, flat) for f in node.reductions]
    emitter.count_uses(values)
    reductions = [replace(f, value=v) for f, v in zip(node.reductions, values, strict=True)]
    views: list[ReductionView] = [printed_reduction(f, names[f.acc.name], emitter) for f in reductions]
    others = tuple(loop for loop, v in zip(outer, node.rdims, strict=True) if v is not tap)
    return Neighbours(each, lane, others, tuple(views), tuple(emitter.pre), tuple(emitter.body))


def _flat(value: Expr, vector: Var, tap: Var, flat: Var) -> Expr:
    """The value with the lanes along all elements of all windows."""

    def at(e: Expr) -> Expr | None:
        return Load(e.buffer, e.index.without(vector).without(tap) + of(flat)) if isinstance(e, Load) else None

    return rewrite(value, at)
