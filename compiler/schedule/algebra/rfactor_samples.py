"""Folds of whole samples in pieces, where a map of the same samples reads what they come to (see samples.py).

s[i, c] = sum over p:P of x[i, p, c]              t[i, q, c] = sum over p:P/Q of x[i, q*P/Q + p, c]      q:Q
y[i, p, c] = f(x[i, p, c], s[i, c])      ->       s[i, c] = sum over q of t[i, q, c]
                                                  y[i, p, c] = f(x[i, p, c], s[i, c])

So the folds go piece by piece, which the map of the sample before them does, too.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.index import product
from ...ir.nodes import Map, Reduce
from ...ir.rewrite import rfactor
from ..graph import NodeGraph
from ..loops.collapse import collapse, collapse_reduced
from ..loops.pipeline_samples import statistics_for
from ..loops.vector_axis import folds_whole, reduces_contiguous
from .blocked_variance import Cut, pieces_of

#: places that a fold is of, at least, and channels, at most: a piece of them is not much more than a first cache
PLACES, CHANNELS = 512, 512


def rfactor_samples(graph: NodeGraph) -> None:
    """Cuts the fold of many samples that a map of them asks for, where it is one fold alone."""
    for node in list(graph.nodes):
        fold = _fold_for(graph, node) if isinstance(node, Map) else None
        pieces = pieces_of(fold, again=True, samples=True) if fold is not None else 1
        if fold is not None and pieces > 1:
            graph.replace_by(_original(graph, fold), _split(fold, pieces))


def _original(graph: NodeGraph, fold: Reduce) -> Reduce:
    node = graph.producer(fold.stores[0].buffer)
    assert isinstance(node, Reduce)
    return node


def _fold_for(graph: NodeGraph, last: Map) -> Reduce | None:
    """The fold that a map of samples asks for, its loops as one; None: there are others, or it is of something else."""
    _, folds = statistics_for(graph, last)
    if len(folds) != 1 or not isinstance(folds[0], Reduce):
        return None
    fold, places = collapse_reduced(folds[0]), collapse(last, keep=1, spare=1)
    if len(fold.dims) != 2 or len(fold.rdims) != 1 or len(places.dims) != 3 or reduces_contiguous(fold):
        return None
    if (fold.rdims[0].extent.constant or 0) < PLACES or (fold.dims[1].extent.constant or CHANNELS + 1) > CHANNELS:
        return None
    alike = fold.rdims[0].extent == places.dims[1].extent and fold.dims[1].extent == places.dims[2].extent
    return fold if alike and not folds_whole(fold) else None


def _split(node: Reduce, pieces: int) -> list[Reduce]:
    """The folds of the pieces, and those of all of them."""
    cut = Cut.into(node, pieces)
    assert product(v.extent for v in cut.loops).constant == cut.size
    first, again = rfactor(node, cut.dims, cut.loops, cut.moved, cut.at, cut.results)
    return [first, replace(node, rdims=(cut.piece,), folds=again)]
