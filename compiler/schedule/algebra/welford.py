"""Welford: the variance of columns is reduced in one pass where the second pass would read the second-level cache or
memory.

mean[k] = sum over i of x[i, k] / I
s[k] = sum over i of (x[i, k] - mean[k])^2        ->        s[k] = welford over i of x[i, k]

It applies where no other kernel reads the mean or the elements, and where rows are contiguous. The reduction takes two
rows at a time and combines their mean and squares with those of the previous rows by the law `chan` of ir/laws.py.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.index import ONE, product
from ...ir.lanes import ALIGNMENT, lane_stride
from ...ir.nodes import Reduce, Reduction
from ...machine.cpu_loops import COLUMN_LOOPS, TASKS, VARIANCES
from ..graph import NodeGraph
from ..loops.vector_axis import vector_loop
from .mean_variance import Pair, pair_of, read_again


def combine_by_welford(graph: NodeGraph) -> None:
    """Makes one reduction of a mean and the squares about it."""
    for node in list(graph.nodes):
        pair = pair_of(graph, node) if isinstance(node, Reduce) else None
        if pair is None or read_again(graph, pair.mean, pair.squares):
            continue
        mean = pair.mean.stores[0].buffer
        squares = _in_one_reading(pair.with_one_loop()) if mean.kind == "temp" else None
        if squares is not None and graph.readers(mean) == [pair.squares]:
            graph.replace(pair.squares, replace(squares, origin=pair.mean.origin + pair.squares.origin))
            graph.remove(pair.mean)


def _in_one_reading(pair: Pair) -> Reduce | None:
    """The squares by Welford's combination; None where reading twice takes no longer."""
    squares = pair.squares
    reduction, columns = squares.reductions[0], vector_loop(squares)
    if reduction.acc.dtype != "f32" or len(squares.rdims) != 1 or not squares.dims or columns is not squares.dims[-1]:
        return None
    rows, width = squares.rdims[0].extent.constant or 0, columns.extent.constant or 0
    tasks = product(v.extent for v in squares.dims[:-1]).constant or 0
    if rows < COLUMN_LOOPS.in_registers or rows * width <= VARIANCES.in_l1 or tasks < TASKS.reductions:
        return None
    if width % ALIGNMENT or not VARIANCES.least_columns <= width <= VARIANCES.most_columns:
        return None
    element = pair.element
    steps = [(load.index.coefficient(squares.rdims[0]), lane_stride(load.index, columns)) for load in element.loads]
    return (
        replace(squares, reductions=(Reduction(reduction.acc, "welford", element),))
        if (columns.extent, ONE) in steps
        else None
    )
