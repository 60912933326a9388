"""A map that gathers from another map's result within the same row is fused with it into one loop over the rows.

    t[h, w] = f(x[.., w])                    for h:  row[:] = f(x[.., :])
    y[h, v] = g(t[h, at[v]])       ->                y[h, v] = g(row[at[v]])

Images are resized like this: rows are combined in whole vectors, and pixels are gathered from one row in the
first-level cache. The loops keep the order of y, whatever the order of t was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, Load, rewrite, substitute
from ...ir.index import (
    ZERO,
    Atom,
    Index,
    Indirect,
    Var,
    as_index,
    of,
    product,
)
from ...ir.nodes import Map, Nest, Store
from ...ir.rewrite import map_expressions
from ...machine.cpu_loops import FUSIONS
from ..graph import NodeGraph, label
from ..remarks import Remarks
from .invert import invert
from .rows import as_prologue

Rows = tuple[Var, ...]


def fuse_lookups(graph: NodeGraph, remarks: Remarks) -> None:
    """Makes nests of two maps, where all the rows of the first one are the second's."""
    for node in list(graph.nodes):
        if isinstance(node, Map):
            found = next(_makers(graph, node, remarks), None)
            if found is not None:
                maker, stage, rows = found
                remarks.fused(label(maker), label(node), "one kernel over the rows")
                graph.remove(maker)
                graph.replace(node, _nest(stage, node, rows))


def _makers(graph: NodeGraph, node: Map, remarks: Remarks) -> Iterator[tuple[Map, Map, Rows]]:
    """The maps that make what the node looks up, as stages of the rows, and the rows."""
    for load in dict.fromkeys(ld for s in node.stores for ld in s.value.loads):
        maker = graph.producer(load.buffer)
        alone = load.buffer.kind == "temp" and graph.readers(load.buffer) == [node]
        if not isinstance(maker, Map) or not alone:
            continue
        places = [v for a in load.index.atoms() if isinstance(a, Indirect) for v in a.value.vars()]  # type: ignore[attr-defined]
        rows = node.dims[: min((node.dims.index(v) for v in places), default=0)]
        if not rows:
            continue
        stage, reason = as_prologue(graph, maker, {node: node}, rows)
        if not isinstance(stage, Map):
            remarks.refused(label(maker), label(node), reason)
        elif (_bytes(stage, rows) or FUSIONS.looked_up_bytes + 1) <= FUSIONS.looked_up_bytes:
            yield maker, stage, rows


def _bytes(stage: Map, rows: Rows) -> int | None:
    """Of a row of what the stage makes."""
    line = product(v.extent for v in stage.dims[len(rows) :]) * DTYPES[stage.stores[0].buffer.dtype].size
    return line.constant


def _nest(stage: Map, node: Map, rows: Rows) -> Nest:
    """The two stages over blocks of rows."""
    (store,) = stage.stores
    inner = stage.dims[len(rows) :]
    block, inside, at = _block(rows[-1], _bytes(stage, rows) or 1)
    local = Buffer(store.buffer.name, store.buffer.dtype, product(v.extent for v in (*inside, *inner)), "local")

    def place(values: Mapping[Var, Index]) -> Index:
        flat = ZERO
        for v in (*inside, *inner):
            flat = flat * v.extent + values.get(v, of(v))
        return flat

    def leaf(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer is store.buffer):
            return None
        values = invert(store, stage.dims, e.index)
        assert values is not None
        return Load(local, place({v: values[v] for v in inner}))

    outer = (*rows[:-1], block)
    first = Map((*outer, *inside, *inner), (Store(local, place({}), substitute(store.value, at)),), stage.origin)
    second = map_expressions(node, lambda e: substitute(rewrite(e, leaf), at), lambda i: i.substitute(at))
    second = replace(second, dims=(*outer, *inside, *node.dims[len(rows) :]))
    return Nest(outer, (), stage.origin + node.origin, (first, second), (local,))


def _block(row: Var, row_bytes: int) -> tuple[Var, Rows, dict[Atom, Index]]:
    """The loop over blocks of rows, that inside of one (none for a single row), and the row in terms of both."""
    count = row.extent.constant or 1
    most = min(FUSIONS.together, FUSIONS.together_bytes // row_bytes)
    size = max((n for n in range(1, most + 1) if count % n == 0), default=1)
    if size == 1:
        return row, (), {}
    block, inside = Var(f"{row.name}_block", as_index(count // size)), Var(f"{row.name}_row", as_index(size))
    return block, (inside,), {row: of(block) * size + of(inside)}
