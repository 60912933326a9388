"""Split reductions on a GPU: many programs reduce pieces of few long rows, a second kernel the pieces."""

from __future__ import annotations

from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Acc, Load, substitute
from ...ir.index import (
    ONE,
    Var,
    as_index,
    of,
    product,
    row_major,
)
from ...ir.nodes import Fold, Reduce, Store
from ...ir.rewrite.loops import digits
from ..graph import NodeGraph

#: rows of a reduction that are enough programs for a GPU
ENOUGH_ROWS = 64
#: elements of a row that one program folds faster than two kernels
LONG_ROW = 32768
#: the same of rows that lie side by side in memory, which programs take many of
ENOUGH_COLUMNS, LONG_COLUMN = 8192, 2048
PARTS = 256
#: folds whose parts are folded again
AGAIN = {"sum": "sum", "prod": "prod", "max": "max", "top": "top", "min": "min", "any": "any", "all": "all"}


def rfactor_rows(graph: NodeGraph) -> None:
    """Splits the reductions of few rows that are long."""
    for node in list(graph.nodes):
        if isinstance(node, Reduce):
            _split_long_rows(graph, node)


def _split_long_rows(graph: NodeGraph, node: Reduce) -> None:
    """acc[m] = fold over r:R      ->      part[m, c] = fold over l:R/C; acc[m] = fold over c:C of part[m, c]

    For few rows that are long; C divides R, so that the parts are equal. Where neighbouring rows are neighbours in
    memory the parts lie [c, m].
    """
    rows, length = product(v.extent for v in node.dims).constant, product(v.extent for v in node.rdims).constant
    if not node.rdims or rows is None or length is None or len(node.folds) != 1 or node.folds[0].op not in AGAIN:
        return
    (fold,) = node.folds
    across = bool(node.dims) and not _along(node, fold)
    enough, long = (ENOUGH_COLUMNS, LONG_COLUMN) if across else (ENOUGH_ROWS, LONG_ROW)
    if rows >= enough or length < long:
        return
    most = min(PARTS, max(8, 4 * ENOUGH_COLUMNS // rows)) if across else PARTS
    parts = max(c for c in range(1, most + 1) if length % c == 0)
    if parts < 8:
        return
    part, within = (
        Var("c" + node.rdims[0].name, as_index(parts)),
        Var("l" + node.rdims[0].name, as_index(length // parts)),
    )
    values = digits(node.rdims, of(part) * (length // parts) + of(within))
    flat = row_major(node.dims)
    buffer = Buffer(f"{node.stores[0].buffer.name}_parts", fold.value.dtype, as_index(rows * parts), "temp")
    place = of(part) * rows + flat if across else flat * parts + of(part)
    dims = (part, *node.dims) if across else (*node.dims, part)
    first_acc = Acc(f"{fold.acc.name}p", fold.acc.dtype)
    first = Reduce(
        dims, (Store(buffer, place, first_acc),), node.origin, (within,),
        (Fold(first_acc, fold.op, substitute(fold.value, values)),),
    )  # fmt: skip
    second = replace(node, rdims=(part,), folds=(Fold(fold.acc, AGAIN[fold.op], Load(buffer, place)),))
    graph.expand(node, (first, second))


def _along(node: Reduce, fold: Fold) -> bool:
    """Whether neighbours in memory are folded together, rather than being rows of their own."""
    last = node.rdims[-1]
    return any(load.index.coefficient(last) == ONE for load in fold.value.loads)
