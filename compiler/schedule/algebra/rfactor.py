"""rfactor: a long reduction to few elements becomes partial reductions that run in parallel, and a reduction of these.

    s = sum over i:I, j of x[i, j]      ->      p[k]  = sum over i:I/K, j of x[k*I/K + i, j]      k:K
                                                s     = sum over k of p[k]

The parts depend on the sizes alone, so that the result has the same bits at any number of threads. Sums are also more
accurate. Reductions of dynamic sizes, and of sizes without a suitable divisor, stay as they are.
"""

from __future__ import annotations

from ...ir.index import (
    Atom,
    Index,
    Var,
    as_index,
    of,
    product,
    row_major,
)
from ...ir.nodes import Map, Reduce
from ...ir.rewrite import rfactor
from ...machine.cpu_loops import SPLITS, TASKS
from ..graph import NodeGraph
from ..loops.vector_axis import reduces_whole, vector_loop


def split_reductions(graph: NodeGraph) -> None:
    """Splits each long reduction with few results into parts that run in parallel, and a reduction of their results."""
    for node in list(graph.nodes):
        if isinstance(node, Reduce) and not reduces_whole(node):
            pieces = _pieces(node)
            if pieces > 1:
                graph.replace_by(node, _split(graph, node, pieces))


def _pieces(node: Reduce) -> int:
    """How many pieces of the outermost reduced loop; 1: leave it whole."""
    kept, reduced = node.extent.constant, product(v.extent for v in node.rdims).constant
    first = node.rdims[0].extent.constant if node.rdims else None
    if kept is None or reduced is None or first is None or kept * reduced < SPLITS.elements:
        return 1
    tasks, vector = kept, vector_loop(node)
    if vector in node.dims and vector is not None:
        width = vector.extent.constant or 1
        tasks = kept // width * -(-width // SPLITS.columns)
    if tasks >= TASKS.reductions:
        return 1
    fitting = [d for d in range(1, SPLITS.pieces // tasks + 1) if first % d == 0 and d * SPLITS.piece <= reduced]
    return max(fitting, default=1)


def _split(graph: NodeGraph, node: Reduce, pieces: int) -> list[Reduce | Map]:
    outer, rest = node.rdims[0], node.rdims[1:]
    piece = Var(f"{outer.name}_piece", as_index(pieces))
    inner = Var(f"{outer.name}_in", outer.extent // as_index(pieces))
    moved: dict[Atom, Index] = {outer: of(piece) * inner.extent + of(inner)}
    dims = (piece, *node.dims)
    first, again = rfactor(node, dims, (inner, *rest), moved, row_major(dims), product(v.extent for v in dims))
    return [first, Reduce(node.dims, node.stores, node.origin, (piece,), again)]
