"""The terms of a reduction are stored for a later stage of the same rows, where they are expensive to recompute.

s = sum_k exp(x[k] - m)                        t[k] = exp(x[k] - m)
y[k] = exp(x[k] - m) * s          ->           s = sum_k t[k]
                                               y[k] = t[k] * s

On a CPU t stays in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Expr, Load, replaced, substitute
from ...ir.index import (
    Atom,
    Index,
    Var,
    of,
    product,
    row_major,
)
from ...ir.nodes import Map, Nest, Reduce, Store
from ...ir.rewrite import map_expressions
from ...machine.cpu_loops import WORK
from ..cost.estimates import work
from ..graph import NodeGraph

Stages = tuple[Map | Reduce, ...]


def keep_terms(graph: NodeGraph) -> None:
    """Gives every nest buffers for the terms of its reductions that are worth keeping."""
    for nest in list(graph.nodes):
        if not isinstance(nest, Nest):
            continue
        changed = nest
        for node in nest.stages:
            found = _kept(changed.stages, node, nest.dims) if isinstance(node, Reduce) else None
            if found is not None:
                stages, terms = found
                changed = replace(changed, stages=stages, locals=(*changed.locals, terms))
        if changed is not nest:
            graph.replace(nest, changed)


def _kept(stages: Stages, node: Reduce, rows: tuple[Var, ...]) -> tuple[Stages, Buffer] | None:
    loops = (*node.rdims, *node.dims[len(rows) :])
    size = product(v.extent for v in loops)
    most = WORK.block if len(node.dims) > len(rows) else WORK.terms
    if len(node.reductions) != 1 or work(node.reductions[0].value) < WORK.term or not 0 < (size.constant or 0) <= most:
        return None
    (reduction,) = node.reductions
    terms = Buffer(f"{node.stores[0].buffer.name}_terms", reduction.value.dtype, size, "local")
    at = stages.index(node)
    later = tuple(_reading(s, reduction.value, loops, terms, len(rows)) for s in stages[at + 1 :])
    if later == stages[at + 1 :]:
        return None
    first = Map((*rows, *loops), (Store(terms, row_major(loops), reduction.value),), node.origin)
    again = replace(node, reductions=(replace(reduction, value=Load(terms, row_major(loops))),))
    return (*stages[:at], first, again, *later), terms


def _reading(stage: Map | Reduce, value: Expr, loops: Sequence[Var], terms: Buffer, rows: int) -> Map | Reduce:
    """The stage with loads in place of the terms; the stage itself where it has none of them."""
    own = stage.dims[rows:]
    if not isinstance(stage, Map) or [v.extent for v in own] != [v.extent for v in loops]:
        return stage
    names: dict[Atom, Index] = {v: of(u) for v, u in zip(loops, own, strict=True)}
    wanted = substitute(value, names)
    if not any(e == wanted for s in stage.stores for e in s.value.walk()):
        return stage
    load = Load(terms, row_major(own))
    return map_expressions(stage, lambda e: replaced(e, wanted, load))
