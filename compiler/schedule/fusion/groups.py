"""Loops over grouped channels are split into groups, so that row fusion joins statistics of a group with their readers.

map[n, c:64, p] y[n, c, p] = x[n, c, p] - mean[n, c // 2]
    ->    map[n, g:32, c:2, p] y[n, g*2 + c, p] = x[n, g*2 + c, p] - mean[n, g]
"""

from __future__ import annotations

from ...ir.index import Binary, Index, Var, of
from ...ir.nodes import Map, Reduce
from ...ir.rewrite import split
from ..graph import NodeGraph
from ..loops.vector_axis import vector_loop


def cut_groups(graph: NodeGraph) -> None:
    """Cuts the loops of maps that read a reduction's results by groups."""
    for node in list(graph.nodes):
        if isinstance(node, Map):
            found = _group(graph, node)
            if found is not None:
                graph.replace(node, _cut(node, *found))


def _group(graph: NodeGraph, node: Map) -> tuple[Var, Index] | None:
    """The loop and the size of its groups; None where there are none, or where it is the one along the lanes."""
    lanes = vector_loop(node)
    for load in (ld for e in node.expressions() for ld in e.loads):
        if not isinstance(graph.producer(load.buffer), Reduce):
            continue
        for atom in load.index.atoms():
            if not isinstance(atom, Binary) or atom.op != "//" or (atom.b.constant or 0) < 1:
                continue
            own = next((v for v in node.dims if atom.a == of(v)), None)
            if own is not None and own is not lanes and own.extent == own.extent // atom.b * atom.b:
                return own, atom.b
    return None


def _cut(node: Map, own: Var, size: Index) -> Map:
    group, within = Var(f"{own.name}_group", own.extent // size), Var(own.name, size)
    return split(node, own, group, within)
