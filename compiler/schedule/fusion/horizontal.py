"""Horizontal fusion: reductions that read the same operands become one, which reads them once.

a = sum over j of x[i, j] x[i, j]                   a, b, c = sums over j of x[i, j] x[i, j], y[i, j] y[i, j],
b = sum over j of y[i, j] y[i, j]           ->                               x[i, j] y[i, j]
z[i] = g(a, b, sum over j of x[i, j] y[i, j])       z[i] = g(a, b, c)

It does not apply where one of them needs the result of another. The reductions are stages of a nest, or kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import Acc, Expr, Load, rewrite
from ...ir.index import Atom, Index, of
from ...ir.nodes import Map, Nest, Reduce, Reduction, Store
from ...ir.rewrite import substituted
from ...machine.cpu_loops import COLUMN_LOOPS
from ..graph import NodeGraph
from ..loops.vector_axis import reduces_contiguous, reduces_whole, vector_loop

Stage = Map | Reduce


def fuse_horizontally(graph: NodeGraph) -> None:
    """Joins the reductions of each nest that stand one behind the other, and reductions that are alone."""
    for nest in list(graph.nodes):
        if isinstance(nest, Nest) and nest.walk is None and not nest.pipeline_stages:
            stages = _with_joined(nest.stages)
            if len(stages) < len(nest.stages):
                graph.replace(nest, _without_unread(replace(nest, stages=stages)))
    while (pair := _beside(graph)) is not None:
        first, second = pair
        renamed = in_loops_of(first, second)
        assert renamed is not None
        graph.remove(second)
        graph.replace(first, joined((first, renamed)))


def _beside(graph: NodeGraph) -> tuple[Reduce, Reduce] | None:
    """Two reductions that are alone, read the same, and may both run in the place of the first."""
    seen: dict[object, list[Reduce]] = {}
    for node in graph.nodes:
        if isinstance(node, Reduce) and _is_plain(node):
            others = seen.setdefault(_sizes(node), [])
            for first in others:
                renamed = in_loops_of(first, node)
                if renamed is not None and _connected((first, renamed)) and runs_at(graph, node, first):
                    return first, node
            others.append(node)
    return None


def runs_at(graph: NodeGraph, node: Reduce, first: Reduce) -> bool:
    """Whether the node may run where an earlier one does: it reads nothing that is written from there on."""
    late = [graph.position(w) for b in node.reads() for w in graph.writers(b)]
    kept = all(s.buffer.root is s.buffer for s in node.stores) and not graph.crosses(node.reads(), first, node)
    return kept and all(at < graph.position(first) for at in late)


def _is_plain(node: Reduce) -> bool:
    """Whether the reductions may stand beside others: of rows or columns, and no windows."""
    long = (
        len(node.rdims) == 1
        and (node.rdims[0].extent.constant or COLUMN_LOOPS.in_registers) >= COLUMN_LOOPS.in_registers
    )
    return long and vector_loop(node) is not None and not reduces_whole(node)


def _sizes(node: Reduce) -> object:
    return len(node.dims), tuple(v.extent for v in (*node.dims, *node.rdims)), reduces_contiguous(node)


def _with_joined(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    found: list[Stage] = []
    rest = list(stages)
    while rest:
        run = _run(rest)
        found.append(joined(run) if _connected(run) else rest[0])
        del rest[: len(run) if _connected(run) else 1]
    return tuple(found)


def _run(stages: Sequence[Stage]) -> list[Reduce]:
    """The first stages, as far as they reduce the same rows on their own, in the loops of the first."""
    run: list[Reduce] = []
    for stage in stages:
        if not isinstance(stage, Reduce) or not _is_plain(stage) or not reduces_contiguous(stage):
            break
        renamed = in_loops_of(run[0], stage) if run else stage
        if renamed is None or not _knows(run, renamed):
            break
        run.append(renamed)
    return run


def _knows(run: Sequence[Reduce], node: Reduce) -> bool:
    """Whether a node asks for results of the others at its end alone, and for those of its own place."""
    made = {s.buffer: s.index for r in run for s in r.stores}
    ends = all(made.get(load.buffer, load.index) == load.index for s in node.stores for load in s.value.loads)
    return ends and not any(load.buffer in made for f in node.reductions for load in f.value.loads)


def in_loops_of(first: Reduce, node: Reduce) -> Reduce | None:
    """The node with the loops of another one; None where it has others."""
    loops = [(*n.dims, *n.rdims) for n in (node, first)]
    if len(node.dims) != len(first.dims) or [v.extent for v in loops[0]] != [v.extent for v in loops[1]]:
        return None
    names: dict[Atom, Index] = {v: of(u) for v, u in zip(*loops, strict=True)}
    renamed = substituted(node, names)
    return replace(renamed, dims=first.dims, rdims=first.rdims)


def _connected(run: Sequence[Reduce]) -> bool:
    """Whether there are several, and every one reads something that another one reads, too."""
    reads = [{load for f in r.reductions for load in f.value.loads} for r in run]
    met, left = reads[:1], reads[1:]
    while near := [r for r in left if any(r & m for m in met)]:
        met, left = [*met, *near], [r for r in left if r not in near]
    return len(met) > 1 and not left


def joined(run: Sequence[Reduce]) -> Reduce:
    """One reduction with the accumulators of all, whose ends know the results of those before them."""
    reductions: list[Reduction] = []
    stores: list[Store] = []
    for node in run:
        taken = {f.acc.name for f in reductions}
        own: dict[Expr, Acc] = {
            f.acc: replace(f.acc, name=f"{f.acc.name}_{len(reductions)}")
            for f in node.reductions
            if f.acc.name in taken
        }
        known: dict[Expr, Expr] = {**own, **{Load(s.buffer, s.index): s.value for s in stores}}
        reductions += [replace(f, acc=own.get(f.acc, f.acc)) for f in node.reductions]
        stores += [replace(s, value=rewrite(s.value, known.get)) for s in node.stores]
    (first, *others) = run
    origin = first.origin
    for node in others:
        origin = origin + node.origin
    return replace(first, stores=tuple(stores), reductions=tuple(reductions), origin=origin)


def _without_unread(nest: Nest) -> Nest | Reduce:
    """Without stores to rows that no stage reads any more; a nest of one reduction is that."""
    read = {b for s in nest.stages for b in s.reads()}
    kept = tuple(b for b in nest.locals if b in read)
    gone = set(nest.locals) - set(kept)
    stages = tuple(replace(s, stores=tuple(x for x in s.stores if x.buffer not in gone)) for s in nest.stages)
    (stage, *others) = stages
    if isinstance(stage, Reduce) and not others and not kept:
        return replace(stage, origin=nest.origin)
    return replace(nest, stages=stages, locals=kept)
