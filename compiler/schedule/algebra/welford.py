"""Variances of columns are reduced in one reading where the second one would come from the second level cache or
memory.

mean[k] = sum over i of x[i, k] / I
s[k] = sum over i of (x[i, k] - mean[k])^2        ->        s[k] = spread over i of x[i, k]

Where nobody else asks for the mean or the elements, and rows lie one behind the other in memory. A spread takes
two rows at a time, whose mean and squares join those of the rows before (Chan, Golub, LeVeque 1979).
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.index import ONE, product
from ...ir.lanes import ALIGNMENT, lane_stride
from ...ir.nodes import Reduce, Reduction
from ..graph import NodeGraph
from ..loops.vector_axis import LEAST_ROWS, vector_loop
from .mean_variance import Pair, pair_of, read_again
from .rfactor import ENOUGH_TASKS

#: elements of columns that are in the first level cache when they are read again
CACHED = 1 << 13
#: fewer columns wait for the row before them; of more, what is known does not stay in that cache
LEAST_COLUMNS, MOST_COLUMNS = 128, 1024


def combine_by_welford(graph: NodeGraph) -> None:
    """Makes one reduction of a mean and the squares about it."""
    for node in list(graph.nodes):
        pair = pair_of(graph, node) if isinstance(node, Reduce) else None
        if pair is None or read_again(graph, pair.mean, pair.squares):
            continue
        mean = pair.mean.stores[0].buffer
        spread = _spread(pair.with_one_loop()) if mean.kind == "temp" else None
        if spread is not None and graph.readers(mean) == [pair.squares]:
            graph.replace(pair.squares, replace(spread, origin=pair.mean.origin + pair.squares.origin))
            graph.remove(pair.mean)


def _spread(pair: Pair) -> Reduce | None:
    """Squares as a spread; None where they are as soon read twice."""
    squares = pair.squares
    reduction, columns = squares.reductions[0], vector_loop(squares)
    if reduction.acc.dtype != "f32" or len(squares.rdims) != 1 or not squares.dims or columns is not squares.dims[-1]:
        return None
    rows, width = squares.rdims[0].extent.constant or 0, columns.extent.constant or 0
    tasks = product(v.extent for v in squares.dims[:-1]).constant or 0
    if rows < LEAST_ROWS or rows * width <= CACHED or tasks < ENOUGH_TASKS:
        return None
    if width % ALIGNMENT or not LEAST_COLUMNS <= width <= MOST_COLUMNS:
        return None
    element = pair.element
    steps = [(load.index.coefficient(squares.rdims[0]), lane_stride(load.index, columns)) for load in element.loads]
    return (
        replace(squares, reductions=(Reduction(reduction.acc, "spread", element),))
        if (columns.extent, ONE) in steps
        else None
    )
