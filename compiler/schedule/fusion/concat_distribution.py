"""Distribution of concatenations: a map that reads a concatenated tensor computes its parts itself.

    t[i, j]     = f(i, j)    j:a                    for i:
    t[i, a + j] = h(i, j)    j:b          ->            y[i, j]     = g(f(i, j))    j:a
    y[i, j]     = g(t[i, j]) j:a+b                      y[i, a + j] = g(h(i, j))    j:b

Thus a rotary embedding, which swaps the halves of its operand and negates one, is one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.buffers import Buffer
from ...ir.expr import Expr, Load, rewrite, substitute
from ...ir.in_place import overwrites, shared_roots
from ...ir.index import (
    ONE,
    ZERO,
    Atom,
    Index,
    Var,
    as_index,
    of,
)
from ...ir.nodes import Map, Nest, Origin, Store
from ...ir.program import AnyNode
from ..graph import NodeGraph, label, loads_of
from ..remarks import Remarks


def distribute_concats(graph: NodeGraph, remarks: Remarks) -> None:
    """Splits the readers of concatenations, and makes one kernel of the pieces that nobody computes in place."""
    for buffer in dict.fromkeys(b for node in graph.nodes for b in node.writes()):
        pieces = [w for w in graph.writers(buffer) if isinstance(w, Map) and len(w.stores) == 1]
        if len(pieces) < 2 or len(pieces) != len(graph.writers(buffer)):
            continue
        readers = graph.readers(buffer)
        whole = buffer.kind == "temp" and len(readers) == 1 and not _overwritten(graph, pieces, readers[0])
        parts = _parts(buffer, pieces, readers[0]) if whole else None
        if parts is not None:
            reader = readers[0]
            for piece in pieces:
                remarks.fused(label(piece), label(reader), "computed where it is read, piece by piece")
                graph.remove(piece)
            graph.replace_by(reader, _joined(parts))
        elif _adjacent(graph, pieces):
            joined = _joined(pieces)
            if len(joined) == 1:
                for piece in pieces[1:]:
                    remarks.fused(label(pieces[0]), label(piece), "one kernel over the pieces")
                    graph.remove(piece)
                graph.replace_by(pieces[0], joined)


def _overwritten(graph: NodeGraph, pieces: Sequence[Map], reader: AnyNode) -> bool:
    """Whether what the pieces read is written over before their reader is done."""
    return any(graph.crosses(p.reads(), p, reader) or shared_roots(p.reads()) & overwrites(reader) for p in pieces)


def _adjacent(graph: NodeGraph, pieces: Sequence[Map]) -> bool:
    """Nothing stands between the pieces that one of them needs or that needs one of them."""
    places = [graph.position(p) for p in pieces]
    between = [n for n in graph.nodes if min(places) < graph.position(n) < max(places) and n not in pieces]
    return not any(
        set(p.reads()) & set(n.writes()) or set(p.writes()) & set(n.reads()) for p in pieces for n in between
    )


@dataclass(frozen=True)
class Linear:
    """offset + sum of stride * loop."""

    offset: Index
    strides: dict[Var, Index]


def linear(index: Index, dims: Sequence[Var]) -> Linear | None:
    strides, rest = {}, index
    for v in dims:
        stride = index.coefficient(v)
        if stride is None or stride.vars():
            return None
        strides[v] = stride
        rest = rest.without(v)
    return None if rest.vars() else Linear(rest, strides)


def _parts(buffer: Buffer, pieces: Sequence[Map], reader: AnyNode) -> list[Map] | None:
    """The reader once per piece, with the piece's expression in place of the load; None where that cannot be."""
    if not isinstance(reader, Map):
        return None
    loads = loads_of(reader, buffer)
    place = linear(loads[0].index, reader.dims) if len(loads) == 1 else None
    if place is None or place.offset != ZERO or not all(stride.terms for stride in place.strides.values()):
        return None  # read in part, or again and again
    found: list[tuple[Map, Linear]] = []
    for piece in pieces:
        store = linear(piece.stores[0].index, piece.dims)
        if store is None:
            return None
        found.append((piece, store))
    axis = _axis(place, found[0])
    if axis is None:
        return None
    parts, start = [], ZERO
    while found:
        chosen = next((f for f in found if f[1].offset == place.strides[axis] * start), None)
        if chosen is None:
            return None
        found.remove(chosen)
        part = _part(buffer, reader, place, axis, start, *chosen)
        if part is None:
            return None
        parts.append(part[0])
        start = start + part[1]
    return parts if start == axis.extent else None


def _axis(place: Linear, piece: tuple[Map, Linear]) -> Var | None:
    """The reader's loop that runs over all pieces: the one that the piece does not have."""
    own = {(stride, v.extent) for v, stride in piece[1].strides.items()}
    missing = [v for v, stride in place.strides.items() if stride.terms and (stride, v.extent) not in own]
    return missing[0] if len(missing) == 1 else None


def _part(
    buffer: Buffer, reader: Map, place: Linear, axis: Var, start: Index, piece: Map, store: Linear
) -> tuple[Map, Index] | None:
    """The reader over one piece, and how long the piece is along the axis."""
    values: dict[Atom, Index] = {}
    own: Var | None = None
    for v, stride in store.strides.items():
        same = next(
            (u for u, s in place.strides.items() if u is not axis and s == stride and u.extent == v.extent), None
        )
        if same is not None:
            values[v] = of(same)
        elif stride == place.strides[axis] and own is None:
            own = v
        else:
            return None
    if {v for i in values.values() for v in i.vars()} != set(place.strides) - {axis}:
        return None
    loop = Var(f"{axis.name}_{own.name}", own.extent) if own is not None else None
    along = of(loop) if loop is not None else ZERO
    if own is not None:
        values[own] = along
    moved: dict[Atom, Index] = {axis: along + start}
    value = piece.stores[0].value

    def leaf(e: Expr) -> Expr | None:
        return substitute(value, values) if isinstance(e, Load) and e.buffer is buffer else None

    stores = tuple(
        Store(s.buffer, s.index.substitute(moved), rewrite(substitute(s.value, moved), leaf)) for s in reader.stores
    )
    dims = tuple(d for v in reader.dims for d in ((loop,) if v is axis else (v,)) if d is not None)
    return replace(reader, dims=dims, stores=stores, origin=piece.origin + reader.origin), loop.extent if loop else ONE


def _joined(given: Sequence[Map]) -> list[AnyNode]:
    """One kernel over the outer loops that all parts have, or the parts where they share none, or read across lanes."""
    rows = []
    together = _interleaved(given)
    if together is not None:
        return [together]
    deepest = max(len(p.dims) for p in given)
    parts = [_with_column(p) if len(p.dims) == deepest - 1 else p for p in given]
    if not all(_dense(p) for p in parts):
        return list(given)
    strides = [linear(p.stores[0].index, p.dims) for p in parts]
    for loops in zip(*(p.dims[:-1] for p in parts), strict=False):
        steps = [s.strides[v] if s is not None else None for s, v in zip(strides, loops, strict=True)]
        if steps[0] is None or any(step != steps[0] for step in steps) or len({v.extent for v in loops}) > 1:
            break
        rows.append(loops)
    if not rows:
        return list(given)
    first = tuple(loops[0] for loops in rows)
    stages, origin = [], Origin()
    for k, part in enumerate(parts):
        names: dict[Atom, Index] = {loops[k]: of(row) for loops, row in zip(rows, first, strict=True)}
        stores = tuple(Store(s.buffer, s.index.substitute(names), substitute(s.value, names)) for s in part.stores)
        stages.append(replace(part, dims=(*first, *part.dims[len(first) :]), stores=stores))
        origin = origin + part.origin
    return [Nest(first, (), origin, tuple(stages))]


def _interleaved(parts: Sequence[Map]) -> Map | None:
    """One map for parts that store their elements in turn: y[2*c] = f(c), y[2*c + 1] = g(c)."""
    dims, stores, origin = parts[0].dims, [], Origin()
    if not dims or any([v.extent for v in p.dims] != [v.extent for v in dims] for p in parts):
        return None
    for part in parts:
        names: dict[Atom, Index] = {v: of(u) for v, u in zip(part.dims, dims, strict=True)}
        stores += [Store(s.buffer, s.index.substitute(names), substitute(s.value, names)) for s in part.stores]
        origin = origin + part.origin
    stores.sort(key=lambda s: s.index.terms.get((), 0))
    first = stores[0]
    side_by_side = all(s.buffer is first.buffer and s.index == first.index + i for i, s in enumerate(stores))
    if not side_by_side or first.index.coefficient(dims[-1]) != as_index(len(stores)):
        return None
    return replace(parts[0], stores=tuple(stores), origin=origin)


def _with_column(part: Map) -> Map:
    """A piece of one column, which has no loop, with one."""
    return replace(part, dims=(*part.dims, Var("column", ONE)))


def _dense(part: Map) -> bool:
    """Every load along the last loop is of neighbours, in either direction, or of one element."""
    steps = [ld.index.coefficient(part.dims[-1]) for s in part.stores for ld in s.value.loads] if part.dims else []
    return all(step is not None and (not step.terms or step in (ONE, -ONE)) for step in steps)
