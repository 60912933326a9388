"""Rows shorter than a vector become one loop where their elements are expensive: full vectors outweigh the gathers.

for e:8000  for h:4  y[e*4 + h] = exp(x[e*4 + h] - m[at[e]*4 + h])
                                                  ->      for n:32000  y[n] = exp(x[n] - m[at[n//4]*4 + n%4])
"""

from __future__ import annotations

from ...ir.index import Var
from ...ir.nodes import Map
from ...ir.rewrite import flatten
from ...machine.cpu_loops import LANE_LOOPS
from ..cost.estimates import is_long
from .vector_axis import vector_loop


def without_short_rows(node: Map) -> Map:
    """The map with its last two loops as one; the map itself where that does not help."""
    vector = vector_loop(node)
    if vector is None or len(node.dims) < 2 or vector is not node.dims[-1]:
        return node
    if (vector.extent.constant or LANE_LOOPS.few) >= LANE_LOOPS.few or not any(is_long(s.value) for s in node.stores):
        return node
    one = Var(vector.name, node.dims[-2].extent * vector.extent)
    flat = flatten(node, node.dims[-2:], one)
    return flat if vector_loop(flat) is one else node
