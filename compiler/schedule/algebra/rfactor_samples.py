"""rfactor of reductions over whole samples, where a map over the same samples reads the results (pipeline_samples.py).

s[i, c] = sum over p:P of x[i, p, c]              t[i, q, c] = sum over p:P/Q of x[i, q*P/Q + p, c]      q:Q
y[i, p, c] = f(x[i, p, c], s[i, c])      ->       s[i, c] = sum over q of t[i, q, c]
                                                  y[i, p, c] = f(x[i, p, c], s[i, c])

The reduction then advances part by part, in step with the map of the previous sample.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.index import product
from ...ir.nodes import Map, Reduce
from ...ir.rewrite import rfactor
from ...machine.cpu_loops import SPLITS
from ..graph import NodeGraph
from ..loops.collapse import collapse, collapse_reduced
from ..loops.pipeline_samples import statistics_for
from ..loops.vector_axis import reduces_contiguous, reduces_whole
from .blocked_variance import Cut, pieces_of


def rfactor_samples(graph: NodeGraph) -> None:
    """Cuts the reduction of many samples that a map of them asks for, where it is one reduction alone."""
    for node in list(graph.nodes):
        reduction = _reduction_for(graph, node) if isinstance(node, Map) else None
        pieces = pieces_of(reduction, again=True, samples=True) if reduction is not None else 1
        if reduction is not None and pieces > 1:
            graph.replace_by(_original(graph, reduction), _split(reduction, pieces))


def _original(graph: NodeGraph, reduction: Reduce) -> Reduce:
    node = graph.producer(reduction.stores[0].buffer)
    assert isinstance(node, Reduce)
    return node


def _reduction_for(graph: NodeGraph, last: Map) -> Reduce | None:
    """The reduction that a map of samples asks for, its loops as one; None: there are others, or it is of something
    else."""
    _, reductions = statistics_for(graph, last)
    if len(reductions) != 1 or not isinstance(reductions[0], Reduce):
        return None
    reduction, places = collapse_reduced(reductions[0]), collapse(last, keep=1, spare=1)
    if len(reduction.dims) != 2 or len(reduction.rdims) != 1 or len(places.dims) != 3 or reduces_contiguous(reduction):
        return None
    if (reduction.rdims[0].extent.constant or 0) < SPLITS.places or (
        reduction.dims[1].extent.constant or SPLITS.channels + 1
    ) > SPLITS.channels:
        return None
    alike = reduction.rdims[0].extent == places.dims[1].extent and reduction.dims[1].extent == places.dims[2].extent
    return reduction if alike and not reduces_whole(reduction) else None


def _split(node: Reduce, pieces: int) -> list[Reduce]:
    """The reductions of the pieces, and those of all of them."""
    cut = Cut.into(node, pieces)
    assert product(v.extent for v in cut.loops).constant == cut.size
    first, again = rfactor(node, cut.dims, cut.loops, cut.moved, cut.at, cut.results)
    return [first, replace(node, rdims=(cut.piece,), reductions=again)]
