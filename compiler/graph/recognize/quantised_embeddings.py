"""Pass: embeddings of quantised tables, whose rows are read as integers."""

from __future__ import annotations

import torch

from ...model.operators.quantised import NIBBLE_ZERO
from ..node import Node
from ..patterns import is_op, shape
from ..work import Work, aten
from .quantised_weights import QuantisedWeight, quantised_weight


def quantised_embeddings(work: Work) -> dict[str, int]:
    """embedding(dequantize(w, s, z), i)   ->   mul(sub(embedding(w, i) as f32, embedding(z, i)), embedding(s, i))

    Tables of 4 bits hold two values in a byte, the even one in the lower half. Needs NORMAL, in front of the
    decompositions.
    """
    count = 0
    for node in work.nodes():
        if not is_op(node, "embedding"):
            continue
        weight = quantised_weight(work, node.args[0])
        if weight is not None and weight.values.dim() == 2:
            work.replace(node, _rows(work, node, weight))
            count += 1
    return {"quantised embeddings": count} if count else {}


def _rows(work: Work, node: Node, weight: QuantisedWeight) -> Node:
    ids, lead = node.args[1], list(shape(node)[:-1])
    y = _nibbles(work, node, weight) if _in_halves(weight) else _bytes(work, node, weight)
    if weight.scales is None:
        return _as(work, node, y)
    groups = weight.scales.shape[1]
    split = work.sizes([*lead, groups, weight.group])
    y = work.call(aten.reshape.default, (y, split), like=node)
    parts = ((aten.sub.Tensor, weight.zero_node(work, node)), (aten.mul.Tensor, weight.scale_node(work, node)))
    for operator, table in parts:
        if table is not None:
            own = work.call(aten.embedding.default, (table, ids), like=node)
            own = work.call(aten.reshape.default, (own, work.sizes([*lead, groups, 1])), like=node)
            if table.meta["val"].dtype != torch.float32:
                own = work.call(aten._to_copy.default, (own,), {"dtype": torch.float32}, like=node)
            y = work.call(operator, (y, own), like=node)
    return _as(work, node, work.call(aten.reshape.default, (y, work.sizes([*lead, weight.columns])), like=node))


def _bytes(work: Work, node: Node, weight: QuantisedWeight) -> Node:
    """The values of the rows as floats."""
    rows = _gathered(work, node, weight.node(work, node))
    return work.call(aten._to_copy.default, (rows,), {"dtype": torch.float32}, like=node)


def _gathered(work: Work, node: Node, table: Node) -> Node:
    return work.call(aten.embedding.default, (table, node.args[1]), like=node, covers=[node])


def _as(work: Work, node: Node, y: Node) -> Node:
    dtype = node.meta["val"].dtype
    return y if dtype == torch.float32 else work.call(aten._to_copy.default, (y,), {"dtype": dtype}, like=node)


def _in_halves(weight: QuantisedWeight) -> bool:
    return weight.bits == 4 and weight.columns % 2 == 0


def _nibbles(work: Work, node: Node, weight: QuantisedWeight) -> Node:
    """The same of a table of bytes [N, K / 2]."""
    rows = _gathered(work, node, weight.halves(work, node))
    low = work.call(aten.bitwise_and.Scalar, (rows, 15), like=node)
    high = work.call(aten.bitwise_right_shift.Tensor_Scalar, (rows, 4), like=node)
    pairs = work.call(aten.stack.default, ([low, high], -1), like=node)
    flat = work.call(aten.reshape.default, (pairs, work.sizes([*shape(node)[:-1], weight.columns])), like=node)
    wide = work.call(aten._to_copy.default, (flat,), {"dtype": torch.float32}, like=node)
    return work.call(aten.sub.Tensor, (wide, NIBBLE_ZERO), like=node)
