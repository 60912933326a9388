"""Dead code elimination: nodes whose results nobody reads are removed, and so are single results of other nodes.

y[i], p[i] = max over k of x[i, k], its place        ->        p[i] = the place of max over k of x[i, k]
(nobody reads y)
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Acc
from ...ir.nodes import Map, Reduce
from ...ir.structured import Attention
from ..graph import NodeGraph


def remove_dead(graph: NodeGraph) -> None:
    """Drops nodes whose results nobody reads, and such results of nodes that have others."""
    for node in reversed(list(graph.nodes)):
        dead = {b for b in node.writes() if b.kind == "temp" and not graph.readers(b)}
        if len(dead) == len(node.writes()):
            graph.remove(node)
        elif dead and isinstance(node, Map | Reduce):
            graph.replace(node, _without(node, dead))
        elif isinstance(node, Attention) and {o.buffer for o in (node.logsumexp, node.top) if o is not None} & dead:
            graph.replace(node, _without_sums(node, dead))


def _without_sums(node: Attention, dead: set[Buffer]) -> Attention:
    """The attention without what it stores of its rows; where one of the two is read, both stay."""
    stored = {o.buffer for o in (node.logsumexp, node.top) if o is not None}
    return replace(node, logsumexp=None, top=None) if stored <= dead else node


def _without(node: Map | Reduce, dead: set[Buffer]) -> Map | Reduce:
    """The node without some of its results, and without the reductions that were theirs alone."""
    changed = replace(node, stores=tuple(s for s in node.stores if s.buffer not in dead))
    if isinstance(changed, Reduce):
        asked = {e for s in changed.stores for e in s.value.walk() if isinstance(e, Acc)}
        changed = replace(changed, reductions=tuple(f for f in changed.reductions if f.acc in asked))
    return changed
