"""Joined maps: maps over the same elements that read the same, or each other, become one kernel on a GPU.

    m1[i] = a*m[i] + b*g[i]                            m1[i] = a*m[i] + b*g[i]
    v1[i] = c*v[i] + d*g[i]*g[i]               ->      v1[i] = c*v[i] + d*g[i]*g[i]
    p1[i] = p[i] - r*m1[i]/sqrt(v1[i])                 p1[i] = p[i] - r*(a*m[i] + b*g[i])/sqrt(...)

Law: an element of the later map takes of the earlier one nothing but what the same iteration computes, and no node
between them reads or writes what the earlier one writes, or writes what it reads. The stores of the later map come
first, so that each reads what stays in place until its own store.

Maps of one number each, such as the counters of batches that a model's norms have, are one kernel, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Expr, Load, rewrite, substitute
from ...ir.in_place import over_own_elements
from ...ir.index import ONE, Index
from ...ir.nodes import Map, Store
from ..graph import NodeGraph, label
from ..remarks import Remarks
from .invert import invert


def join_maps(graph: NodeGraph, remarks: Remarks) -> None:
    """Joins each map with the nearest earlier ones that it can be joined with."""
    for node in [n for n in graph.nodes if isinstance(n, Map)]:
        later: Map = node
        while (found := next(_joined(graph, later), None)) is not None:
            earlier, joined = found
            remarks.fused(label(earlier), label(later), "one kernel for the same elements")
            graph.replace(later, joined)
            graph.remove(earlier)
            later = joined


def join_numbers(graph: NodeGraph, remarks: Remarks, most: int) -> None:
    """Joins maps of single numbers that have nothing to do with each other, in the place of the first of them.

    most: stores of a kernel.
    """
    first: Map | None = None
    for node in [n for n in graph.nodes if isinstance(n, Map) and not n.dims]:
        joined = None if first is None else _numbers(graph, first, node, most)
        if first is None or joined is None:
            first = node
            continue
        remarks.fused(label(first), label(node), "one kernel for single numbers")
        graph.replace(first, joined)
        graph.remove(node)
        first = joined


def _numbers(graph: NodeGraph, first: Map, node: Map, most: int) -> Map | None:
    """Both in the place of the first one; None where the later one needs to stay, or reads what the first one makes."""
    stores = (*first.stores, *node.stores)
    written, read = ({b.root for b in found} for found in (node.writes(), node.reads()))
    low, high = graph.position(first), graph.position(node)
    between = (n for n in graph.nodes if low <= graph.position(n) < high)
    meets = any(
        written & {b.root for b in (*n.reads(), *n.writes())} or read & {b.root for b in n.writes()} for n in between
    )
    return None if meets or len(stores) > most else replace(first, stores=stores, origin=first.origin + node.origin)


def _joined(graph: NodeGraph, later: Map) -> Iterator[tuple[Map, Map]]:
    """Earlier maps, the nearest first, and the kernels that they and the later one become."""
    near = {n for b in later.reads() for n in (*graph.writers(b), *graph.readers(b)) if isinstance(n, Map)}
    place = graph.position(later)
    for earlier in sorted((n for n in near if graph.position(n) < place), key=graph.position, reverse=True):
        if earlier.extent == later.extent and _may_move(graph, earlier, later):
            joined = _join(earlier, later)
            if joined is not None and over_own_elements(joined):
                yield earlier, joined


def _may_move(graph: NodeGraph, earlier: Map, later: Map) -> bool:
    """Whether no node between them has to do with what the earlier one writes, or writes what it reads."""
    first, last = graph.position(earlier), graph.position(later)
    written, read = ({b.root for b in found} for found in (earlier.writes(), earlier.reads()))
    between = (n for n in graph.nodes if first < graph.position(n) < last)
    return not any(
        written & {b.root for b in (*n.reads(), *n.writes())} or read & {b.root for b in n.writes()} for n in between
    )


def _join(earlier: Map, later: Map) -> Map | None:
    """One map over the loops of the later one; None where they do not share an element of memory in each iteration, or
    where their results lie in other orders."""
    for here, there in _shared(earlier, later):
        values = invert(here, earlier.dims, there)
        if values is None:
            continue
        moved = [Store(s.buffer, s.index.substitute(values), substitute(s.value, values)) for s in earlier.stores]
        places = {(s.buffer, s.index): s.value for s in moved}
        made = {s.buffer for s in moved}

        def leaf(e: Expr, places: dict[tuple[Buffer, Index], Expr] = places) -> Expr | None:
            return places.get((e.buffer, e.index)) if isinstance(e, Load) else None

        stores = [replace(s, value=rewrite(s.value, leaf)) for s in later.stores]
        alike = len({s.index for s in (*stores, *moved)}) == 1
        if alike and not any(load.buffer in made for s in stores for load in s.value.loads):
            return replace(later, stores=(*stores, *moved), origin=earlier.origin + later.origin)
    return None


def _shared(earlier: Map, later: Map) -> Iterator[tuple[Store, Index]]:
    """Elements that vary along all loops and that both maps have: as a store at the place of the earlier one, and the
    place of the later one."""
    loops = {v for v in later.dims if v.extent != ONE}
    own = {s.buffer: s for s in earlier.stores}
    read = {ld.buffer: ld for s in earlier.stores for ld in s.value.loads}
    for load in dict.fromkeys(ld for s in later.stores for ld in s.value.loads if loops <= ld.vars()):
        if load.buffer in own:
            yield own[load.buffer], load.index
        elif load.buffer in read:
            found = read[load.buffer]
            yield Store(found.buffer, found.index, found), load.index
