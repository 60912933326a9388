"""Late updates: what a step does to small parameters runs behind all that reads them.

w1[j] = w[j] - r * (sum over c of g[c, j])          y[i, j] = x[i, j] * w[j]
y[i, j] = x[i, j] * w[j]                      ->    w1[j] = w[j] - r * (sum over c of g[c, j])

Law: nothing between reads or writes what the moved nodes write, or writes what they read. A product's reader that is
computed again where others read it would else read the weight of a norm behind its update. Large parameters stay: their
gradients would take memory for as long.
"""

from __future__ import annotations

from ...ir.buffers import Buffer
from ...ir.nodes import Map, Reduce
from ...ir.program import AnyNode
from ..cost.estimates import number
from ..graph import NodeGraph

#: kinds of memory that outlives a call
KEPT = ("state", "inout")


def update_late(graph: NodeGraph, most: int) -> None:
    """Moves the updates of small tensors of the state to the end, with what is computed for them alone.

    most: elements of a tensor that they read or write.
    """
    late: list[AnyNode] = []
    moved: set[AnyNode] = set()
    touched: set[Buffer] = set()  # memory that nodes behind, which stay, read or write
    written: set[Buffer] = set()
    for node in reversed(graph.nodes):
        if _is_late(graph, node, moved, touched, written, most):
            late.append(node)
            moved.add(node)
            continue
        touched |= {b.root for b in (*node.reads(), *node.writes())}
        written |= {b.root for b in node.writes()}
    for node in reversed(late):
        graph.move_to_end(node)


def _is_late(
    graph: NodeGraph, node: AnyNode, moved: set[AnyNode], touched: set[Buffer], written: set[Buffer], most: int
) -> bool:
    if not isinstance(node, Map | Reduce) or any(number(b.size) > most for b in (*node.reads(), *node.writes())):
        return False
    if not all(b.kind in KEPT or set(graph.readers(b)) & moved for b in node.writes()):
        return False
    kept = all(b.kind in KEPT or (b.kind == "temp" and b.of is None) for b in node.writes())
    apart = not any(b.root in touched for b in node.writes()) and not any(b.root in written for b in node.reads())
    return kept and apart
