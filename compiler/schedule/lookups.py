"""Maps that look up what another map has made of the same row become one loop over the rows with it.

    t[h, w] = f(x[.., w])                    for h:  row[:] = f(x[.., :])
    y[h, v] = g(t[h, at[v]])       ->                y[h, v] = g(row[at[v]])

Images are resized like this: rows are put together in whole vectors, and pixels are picked out of one row that lies in
the first level cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.dtypes import DTYPES
from ..ir.expr import substitute
from ..ir.index import Atom, Index, Indirect, Var, as_index, of, product
from ..ir.nodes import Map
from .graph import NodeGraph, label, map_expressions
from .nest import as_prologue, merge
from .remarks import Remarks

#: of a row of what is looked up, at 8 bytes each: it has to stay in the second level cache
MAX_ROW_BYTES = 1 << 17
#: of rows that are made together, at most so many: one that is read right after it was written is waited for
MAX_ROWS_BYTES, MAX_ROWS = 1 << 14, 16


def fuse_lookups(graph: NodeGraph, remarks: Remarks) -> None:
    """Makes nests of two maps, where all the rows of the first one are the second's."""
    for node in list(graph.nodes):
        if isinstance(node, Map):
            found = next(_makers(graph, node, remarks), None)
            if found is not None:
                maker, stage, rows = found
                remarks.fused(label(maker), label(node), "one kernel over the rows")
                stages, rows = _in_blocks((stage, node), rows)
                merge(graph, list(zip((maker, node), stages, strict=True)), rows, MAX_ROW_BYTES)


def _in_blocks(stages: tuple[Map, Map], rows: tuple[Var, ...]) -> tuple[tuple[Map, Map], tuple[Var, ...]]:
    """The stages over blocks of rows, and the loops over the blocks."""
    row, last = product(v.extent for v in stages[0].dims[len(rows) :]), rows[-1]
    most = min(MAX_ROWS, MAX_ROWS_BYTES // (DTYPES[stages[0].stores[0].buffer.dtype].size * (row.constant or 1)))
    count = last.extent.constant or 1
    size = max((n for n in range(1, most + 1) if count % n == 0), default=1)
    if size == 1:
        return stages, rows
    block, inside = Var(f"{last.name}_block", as_index(count // size)), Var(f"{last.name}_row", as_index(size))
    at: dict[Atom, Index] = {last: of(block) * size + of(inside)}

    def blocked(stage: Map) -> Map:
        changed = map_expressions(stage, lambda e: substitute(e, at), lambda i: i.substitute(at))
        return replace(changed, dims=(*rows[:-1], block, inside, *stage.dims[len(rows) :]))

    return (blocked(stages[0]), blocked(stages[1])), (*rows[:-1], block)


def _makers(graph: NodeGraph, node: Map, remarks: Remarks) -> Iterator[tuple[Map, Map, tuple[Var, ...]]]:
    """The maps that make what the node looks up, as stages of the rows, and the rows."""
    for load in dict.fromkeys(ld for s in node.stores for ld in s.value.loads):
        maker = graph.producer(load.buffer)
        if not isinstance(maker, Map) or graph.readers(load.buffer) != [node]:
            continue
        places = [v for a in load.index.atoms() if isinstance(a, Indirect) for v in a.value.vars()]  # type: ignore[attr-defined]
        rows = node.dims[: min((node.dims.index(v) for v in places), default=0)]
        row = product(v.extent for v in maker.dims[len(rows) :]).constant
        if not rows or row is None or row * 8 > MAX_ROW_BYTES:
            continue
        stage, reason = as_prologue(graph, maker, {node: node}, rows)
        if isinstance(stage, Map):
            yield maker, stage, rows
        else:
            remarks.refused(label(maker), label(node), reason)
