"""A few long rows are split into parts, which threads share.

reduce[k:1048576; j:8] y[k] = sum x[j, k]      ->      reduce[k_piece:32, k:32768; j:8] y[k_piece*32768 + k] = ...
"""

from __future__ import annotations

from ...ir.index import (
    Var,
    as_index,
    product,
)
from ...ir.lanes import ALIGNMENT
from ...ir.nodes import Reduce
from ...ir.rewrite import split
from ...machine.cpu_loops import TASKS
from .vector_axis import reduces_columns

#: loops around the lanes from which on the last one stays inside
INSIDE = 3


def in_shared_pieces(node: Reduce, lanes: Var | None) -> Reduce:
    """The reduction with long rows of `lanes` in equal pieces of whole vectors; as it is where rows are enough."""
    if lanes is None or lanes not in node.dims or reduces_columns(node, lanes) or len(node.dims) >= INSIDE:
        return node
    rows, length = product(v.extent for v in node.dims if v is not lanes).constant, lanes.extent.constant
    if rows is None or rows >= TASKS.reductions or length is None:
        return node
    size = next((n for n in range(TASKS.most, TASKS.least - 1, -ALIGNMENT) if length % n == 0), length)
    if size >= length:
        return node
    piece, inside = Var(f"{lanes.name}_piece", as_index(length // size)), Var(lanes.name, as_index(size))
    return split(node, lanes, piece, inside)
