"""Row fusion: reductions over a row and the maps that use them become one loop over the rows.

mean[m] = sum_n x[m, n] / N                    for m:
y[m, n] = x[m, n] - mean[m]          ->            mean = sum_n x[m, n] / N
                                                   y[m, :] = x[m, :] - mean

On a CPU this includes outer-loop-vectorised reductions, in blocks of columns (loops/column_blocks.py): the results that
a block keeps are a row.

high[m, n] = max_k x[m, k, n]                  for m:
y[m, k, n] = x[m, k, n] - high[m, n] ->            high[:] = max_k x[m, k, :]
                                                   y[m, :, :] = x[m, :, :] - high[:]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Load
from ...ir.in_place import overwrites
from ...ir.index import (
    Atom,
    Binary,
    Index,
    Var,
    of,
    product,
    row_major,
)
from ...ir.nodes import Map, Nest, Reduce, Store
from ...ir.program import AnyNode
from ...ir.rewrite import compute_at, substituted
from ...machine.cpu_loops import FUSIONS, SPLITS
from ..cost.estimates import number
from ..graph import NodeGraph, label
from ..loops.column_blocks import ONE_BY_ONE, PIPELINED, Stages, in_blocks
from ..loops.pipeline_columns import has_stages
from ..loops.vector_axis import reduces_contiguous, vector_loop
from ..remarks import Remarks
from .invert import digits, invert


def fuse_rows(
    graph: NodeGraph, remarks: Remarks, local_bytes: int = FUSIONS.local_bytes, transposes: bool = False
) -> None:
    """Groups every reduction over contiguous rows with the nodes that share its rows.

    local_bytes: of a row of intermediate values (8 bytes each) that is kept with its row. transposes: results may lie
    across the rows.
    """
    _fuse(graph, remarks, local_bytes, reduces_contiguous if transposes else _reduces_rows, transposes)


def _reduces_rows(node: Reduce) -> bool:
    """The lanes run along the reduced dimension, and not over windows: those of neighbours overlap, and are no rows."""
    return reduces_contiguous(node) and not any(
        isinstance(atom, Binary) and atom.op in ("min", "max") and _meet(atom, node)
        for e in node.expressions()
        for load in e.loads
        for atom in load.index.atoms()
    )


def _meet(place: Binary, node: Reduce) -> bool:
    """Whether a place moves with a kept loop and with a reduced one."""
    moving = place.a.vars() | place.b.vars()
    return bool(moving & set(node.dims)) and bool(moving & set(node.rdims))


def fuse_columns(graph: NodeGraph, remarks: Remarks) -> None:
    """Groups every reduction across the lanes with the nodes that share its columns."""
    _fuse(graph, remarks, FUSIONS.local_bytes, _reduces_across, transposes=False)


def _fuse(
    graph: NodeGraph, remarks: Remarks, local_bytes: int, seeds: Callable[[Reduce], bool], transposes: bool
) -> None:
    for node in list(graph.nodes):
        if isinstance(node, Reduce) and node in graph.nodes and seeds(node):
            _grow(graph, node, node.dims, remarks, local_bytes, transposes)


def _reduces_across(node: Reduce) -> bool:
    """The lanes run along the last kept dimension."""
    return bool(node.dims) and bool(node.rdims) and vector_loop(node) is node.dims[-1]


def _grow(
    graph: NodeGraph, seed: Reduce, rows: tuple[Var, ...], remarks: Remarks, local_bytes: int, transposes: bool
) -> None:
    members: dict[AnyNode, Map | Reduce] = {seed: seed}
    while True:
        found = _next(graph, members, rows, remarks, transposes)
        if found is None:
            break
        node, renamed = found
        members[node] = renamed
    if len(members) == 1:
        return
    ordered = sorted(members, key=graph.position)
    stages: Stages = tuple(members[n] for n in ordered)
    if not reduces_contiguous(seed):
        blocks = _blocks(stages, rows)
        if blocks is None:
            return
        stages, rows = blocks
    for node in ordered[1:]:
        remarks.fused(label(ordered[0]), label(node), "one kernel over the rows")
    merge_rows(graph, list(zip(ordered, stages, strict=True)), rows, local_bytes)


def _blocks(stages: Stages, rows: tuple[Var, ...]) -> tuple[Stages, tuple[Var, ...]] | None:
    """The stages over blocks of columns: such as can be pipelined, else blocks in their turn."""
    strips = in_blocks(stages, rows, PIPELINED)
    return strips if strips is not None and has_stages(*strips) else in_blocks(stages, rows, ONE_BY_ONE)


def _next(
    graph: NodeGraph, members: dict[AnyNode, Map | Reduce], rows: tuple[Var, ...], remarks: Remarks, transposes: bool
) -> tuple[AnyNode, Map | Reduce] | None:
    """A node that reads a member's result row by row, or makes a member's operand row by row."""
    for node in list(members):
        for buffer in node.writes():
            for reader in graph.readers(buffer):
                if reader in members or not isinstance(reader, (Map, Reduce)):
                    continue
                renamed, reason = _as_stage(graph, reader, members, rows, transposes)
                if renamed is not None:
                    return reader, renamed
                remarks.refused(label(node), label(reader), reason)
        for buffer in members[node].reads():
            maker = graph.producer(buffer)
            if isinstance(maker, Map | Reduce) and maker not in members and buffer.kind == "temp":
                renamed, reason = as_prologue(graph, maker, members, rows)
                if renamed is not None:
                    return maker, renamed
                remarks.refused(label(maker), label(node), reason)
    return None


def _as_stage(
    graph: NodeGraph, node: Map | Reduce, members: dict[AnyNode, Map | Reduce], rows: tuple[Var, ...], transposes: bool
) -> tuple[Map | Reduce | None, str]:
    """The reader with its row loops renamed to the nest's, or why it cannot join."""
    if _is_serial(node, rows):
        return None, "would run on one thread"
    if isinstance(node, Reduce) and not _reduces_alike(node, members):
        return None, "reduces over another dimension than the rows"
    if not _order_allows(graph, members, node):
        return None, "another kernel has to run in between"
    node = _with_rows(node, rows)
    writes = {s.buffer: (m, s) for m in members.values() for s in m.stores}
    names: dict[Var, Var] | None = None
    for load in _loads(node):
        if load.buffer not in writes:
            continue
        maker, store = writes[load.buffer]
        found = _row_names(maker, store, load, rows)
        if found is None or (names is not None and names != found):
            return None, "does not read the rows one by one"
        names = found
    if names is None or not set(names) <= set(node.dims) or len(names) != len(rows):
        return None, "its loops do not start with the rows"
    if not transposes and isinstance(node, Map) and _transposes(node, names, members, rows):
        return None, "its results lie across the columns"
    return _rename(node, names, rows), ""


def _with_rows(node: Map | Reduce, rows: tuple[Var, ...]) -> Map | Reduce:
    """The node with a loop for each of the rows, where its first one goes over all of them."""
    count = product(v.extent for v in rows)
    if len(rows) < 2 or not node.dims or node.dims[0].extent != count or count.constant is None:
        return node
    own = tuple(Var(f"{node.dims[0].name}{v.name}", v.extent) for v in rows)
    split = substituted(node, {node.dims[0]: row_major(own)})
    return replace(split, dims=(*own, *node.dims[1:]))


def _is_serial(node: Map | Reduce, rows: tuple[Var, ...]) -> bool:
    """Whether a node is long enough for several threads, and a nest has no rows to share among them."""
    loops = (*node.dims, *(node.rdims if isinstance(node, Reduce) else ()))
    return not rows and number(product(v.extent for v in loops)) > SPLITS.elements


def _transposes(node: Map, names: dict[Var, Var], members: dict[AnyNode, Map | Reduce], rows: tuple[Var, ...]) -> bool:
    """Whether a map that reads a nest has its lanes across the nest's: it is a transpose."""
    seed = next(iter(members.values()))
    assert isinstance(seed, Reduce)
    lane = vector_loop(node)
    if reduces_contiguous(seed):
        return lane in names
    return names.get(lane or node.dims[-1]) is not rows[-1]


def _reduces_alike(node: Reduce, members: dict[AnyNode, Map | Reduce]) -> bool:
    """Rows beside rows, columns beside columns."""
    seed = next(iter(members.values()))
    assert isinstance(seed, Reduce)
    return reduces_contiguous(node) if reduces_contiguous(seed) else _reduces_across(node)


def _row_names(maker: Map | Reduce, store: Store, load: Load, rows: tuple[Var, ...]) -> dict[Var, Var] | None:
    """Which loop of the reader is which row: the maker's rows as functions of the reader's loops."""
    values = invert(store, maker.dims, load.index)
    if values is None:
        return None
    names: dict[Var, Var] = {}
    for row in rows:
        value = values.get(row)
        own = next(iter(value.vars()), None) if value is not None and len(value.vars()) == 1 else None
        if own is None or value != of(own) or own.extent != row.extent:
            return None
        names[own] = row
    return names


def as_prologue(
    graph: NodeGraph, maker: Map | Reduce, members: dict[AnyNode, Map | Reduce], rows: tuple[Var, ...]
) -> tuple[Map | Reduce | None, str]:
    """A map whose rows are only read by the same rows of the nest, or a reduction of rows of the same length."""
    if _is_serial(maker, rows):
        return None, "would run on one thread"
    if len(maker.stores) != 1:
        return None, "stores several results"
    if isinstance(maker, Reduce) and not _reduces_as_many(maker, members):
        return None, "reduces rows of another length"
    store = maker.stores[0]
    readers = graph.readers(store.buffer)
    if not any(r in members for r in readers):
        return None, "no reader in the rows"
    names: dict[Var, Var] | None = None
    for reader in readers:
        if reader not in members:
            continue
        for load in _loads(members[reader]):
            if load.buffer is not store.buffer:
                continue
            found = _rows_read(store, maker.dims, load.index, rows)
            if len(found) != len(rows) or (names is not None and names != found):
                return None, "its rows are not the rows of the reduction"
            names = found
    if names is None:
        return None, "no reader in the rows"
    if any(r not in members and graph.position(r) < _last(graph, members) for r in readers):
        return None, "another kernel reads it in between"
    if not stays_in_place(graph, {*members, maker}):
        return None, "what it reads is written over in place"
    return _rename(maker, names, rows), ""


def _rows_read(store: Store, dims: tuple[Var, ...], place: Index, rows: tuple[Var, ...]) -> dict[Var, Var]:
    """Which of the loops `dims` of a store is which row where a nest over the rows reads `place`."""
    values = invert(store, dims, place) or {}
    return {v: r for v, own in values.items() for r in rows if isinstance(v, Var) and own == of(r)}


def _reduces_as_many(node: Reduce, members: dict[AnyNode, Map | Reduce]) -> bool:
    """Whether as many elements become one as in the nest's first reduction, with the lanes in the same direction."""
    seed = next(iter(members.values()))
    assert isinstance(seed, Reduce)
    length, own = (product(v.extent for v in r.rdims) for r in (seed, node))
    return length == own and _reduces_alike(node, members)


def _last(graph: NodeGraph, members: dict[AnyNode, Map | Reduce]) -> int:
    return max(graph.position(m) for m in members)


def _loads(node: Map | Reduce) -> list[Load]:
    return [ld for e in node.expressions() for ld in e.loads]


def _order_allows(graph: NodeGraph, members: dict[AnyNode, Map | Reduce], node: AnyNode) -> bool:
    """The nest runs where its last member stands: nothing outside it may need a member's result before that."""
    last = max(_last(graph, members), graph.position(node))
    inside = {*members, node}
    if not stays_in_place(graph, inside):
        return False
    for member in inside:
        for buffer in member.writes():
            for reader in graph.readers(buffer):
                if reader not in inside and graph.position(reader) < last:
                    return False
    return True


def stays_in_place(graph: NodeGraph, inside: set[AnyNode]) -> bool:
    """Members may run where the last one stands: nobody writes over what they read, nor do they themselves."""
    last = max(inside, key=graph.position)
    return not any(overwrites(m) or graph.crosses(m.reads(), m, last) for m in inside)


def _rename(node: Map | Reduce, names: dict[Var, Var], rows: tuple[Var, ...]) -> Map | Reduce:
    values: dict[Atom, Index] = {own: of(row) for own, row in names.items()}
    inner = tuple(v for v in node.dims if v not in names)
    changed = substituted(node, values)
    return replace(changed, dims=(*rows, *inner))


def merge_rows(
    graph: NodeGraph, members: list[tuple[AnyNode, Map | Reduce]], rows: tuple[Var, ...], local_bytes: int
) -> Nest:
    """Replaces the members by one nest at the place of the last; results that only it reads become local to a row."""
    last = members[-1][0]
    outside = {b for n in graph.nodes if n not in dict(members) for b in n.reads()}
    stages = tuple(stage for _, stage in members)
    names: dict[Buffer, Buffer] = {}
    for stage in stages:
        for store in stage.stores:
            local = _row_buffer(store, stage, rows, local_bytes)
            if store.buffer.kind == "temp" and store.buffer not in outside and local is not None:
                names[store.buffer] = local
    for node, _ in members[:-1]:
        graph.remove(node)
    nest = compute_at(stages, rows, names)
    graph.replace(last, nest)
    return nest


def _row_buffer(store: Store, stage: Map | Reduce, rows: tuple[Var, ...], local_bytes: int) -> Buffer | None:
    """A buffer for one row of a result, when the rows are its slow digits and a row is small."""
    order = digits(store, stage.dims)
    if order is None or {v for v, _ in order[: len(rows)]} != set(rows):
        return None
    size = product(v.extent for v, _ in order[len(rows) :])
    if size.constant is None or size.constant * 8 > local_bytes:
        return None
    return Buffer(store.buffer.name, store.buffer.dtype, size, "local")
