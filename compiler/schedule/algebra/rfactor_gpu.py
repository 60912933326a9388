"""rfactor on a GPU: many programs reduce parts of a few long rows, and a second kernel reduces the partial results."""

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
from ...ir.nodes import Reduce, Reduction, Store
from ...ir.rewrite.loops import digits
from ...machine.gpu_programs import SplitFacts
from ..graph import NodeGraph

#: reductions whose parts are reduced again
AGAIN = {"sum": "sum", "prod": "prod", "max": "max", "top": "top", "min": "min", "any": "any", "all": "all"}


def rfactor_rows(graph: NodeGraph, facts: SplitFacts) -> None:
    """Splits the reductions of few rows that are long."""
    for node in list(graph.nodes):
        if isinstance(node, Reduce):
            _split_long_rows(graph, node, facts)


def _split_long_rows(graph: NodeGraph, node: Reduce, facts: SplitFacts) -> None:
    """acc[m] = reduce over r:R      ->      part[m, c] = reduce over l:R/C; acc[m] = reduce over c:C of part[m, c]

    For few rows that are long; C divides R, so that the parts are equal. Where neighbouring rows are neighbours in
    memory the parts lie [c, m].
    """
    rows, length = product(v.extent for v in node.dims).constant, product(v.extent for v in node.rdims).constant
    if not node.rdims or rows is None or length is None or any(f.op not in AGAIN for f in node.reductions):
        return
    across = lies_across(node)
    enough, long = (facts.columns, facts.column) if across else (facts.rows, facts.row)
    if rows >= enough or length < long:
        return
    most = parts_of_columns(rows, facts) if across else facts.parts
    parts = max(c for c in range(1, most + 1) if length % c == 0)
    if parts < facts.least_parts:
        return
    part, within = (
        Var("c" + node.rdims[0].name, as_index(parts)),
        Var("l" + node.rdims[0].name, as_index(length // parts)),
    )
    values = digits(node.rdims, of(part) * (length // parts) + of(within))
    flat = row_major(node.dims)
    place = of(part) * rows + flat if across else flat * parts + of(part)
    dims = (part, *node.dims) if across else (*node.dims, part)
    stores, first, second = [], [], []
    for i, reduction in enumerate(node.reductions):
        name = f"{node.stores[0].buffer.name}_parts{i or ''}"
        buffer = Buffer(name, reduction.value.dtype, as_index(rows * parts), "temp")
        acc = Acc(f"{reduction.acc.name}p", reduction.acc.dtype)
        stores.append(Store(buffer, place, acc))
        first.append(Reduction(acc, reduction.op, substitute(reduction.value, values)))
        second.append(Reduction(reduction.acc, AGAIN[reduction.op], Load(buffer, place)))
    parted = Reduce(dims, tuple(stores), node.origin, (within,), tuple(first))
    graph.replace_by(node, (parted, replace(node, rdims=(part,), reductions=tuple(second))))


def parts_of_columns(rows: int, facts: SplitFacts) -> int:
    """The most parts of a reduction of so many columns: enough programs of neighbouring columns, and no more."""
    return min(facts.parts, max(facts.least_parts, 4 * facts.columns // rows))


def lies_across(node: Reduce) -> bool:
    """Whether neighbours in memory are columns of their own, rather than being reduced together."""
    return bool(node.dims) and not any(_along(node, reduction) for reduction in node.reductions)


def _along(node: Reduce, reduction: Reduction) -> bool:
    """Whether neighbours in memory are reduced together, rather than being rows of their own."""
    last = node.rdims[-1]
    return any(load.index.coefficient(last) == ONE for load in reduction.value.loads)
