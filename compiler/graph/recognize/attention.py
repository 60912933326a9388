"""Pass: attention where a model spells it out, as scaled_dot_product_attention."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..canonicalize.index_values import IndexValues
from ..canonicalize.known_values import attention_mask
from ..decompose.decompose import decompose_node
from ..node import Node
from ..patterns import (
    arg,
    dtype,
    is_op,
    is_tensor,
    number,
    only_user,
    operands,
    rank,
    shape,
)
from ..sizes import expr, same_shape
from ..work import Work, aten

_PRODUCTS = ("matmul", "bmm")


@dataclass
class Scores:
    """What lies between the product of queries and keys and the softmax.

    Attributes:
        scale: all numbers that the scores are multiplied with.
        masks: nodes added to the scores.
        flat_mask: one more, [b*h, m, n], added before the scores were reshaped to [b, h, m, n].
        fills: (mask, value where the mask holds) put in place of the scores.
        shape: the shape in which masks are applied, None without any.
        nodes: the nodes seen, from the softmax upwards.
        sink: one more score of each row, without a value.
        softcap: scores are softcap * tanh(score / softcap).
    """

    query: Node | None = None
    key: Node | None = None
    scale: float = 1.0
    masks: list[Node] = field(default_factory=list)
    flat_mask: Node | None = None
    fills: list[tuple[Node, bool, float]] = field(default_factory=list)
    shape: tuple[Any, ...] | None = None
    nodes: list[Node] = field(default_factory=list)
    sink: Node | None = None
    softcap: float | None = None


def recognize_attention(work: Work) -> dict[str, int]:
    """s = matmul(q, permute(k, [0, 1, 3, 2])) / sqrt(d) + mask
       y = matmul(softmax(s, -1), v)                         ->     y = sdpa(q, k, v, mask, scale=1/sqrt(d))
       w = softmax(cat([s, sink], -1), -1)
       y = matmul(slice(w, -1, 0, -1), v)                    ->     y, _ = attention(q, k, v, mask, sink, ..)
       s = 5 * tanh(matmul(q, k^T) / 5)                      ->     y, _ = attention(.., softcap=5)
       y, l = softmax_values(s, v)                           ->     y, l = attention(..), the sums' logarithms too

    In 3 or 4 dimensions, in one type or with scores in a wider one, with matmul, bmm or baddbmm, the scale on either
    side of the product, masks added, filled in (masked_fill, where) or none, and scores that are reshaped to add the
    mask. The scores must have no other reader.
    A row that forbids every key gives 0 here where the spelled-out softmax of -inf gives NaN, as torch's own
    scaled_dot_product_attention does. Needs NORMAL and SIMPLE; establishes ATTENTION.
    """
    found = 0
    values = IndexValues(work.constants, work.ranges)
    for node in work.nodes():
        if (is_op(node, *_PRODUCTS) and len(node.args) == 2) or _keeps_sums(node):
            new = _attention(work, node)
            if new is not None:
                attention_mask(work, values, new)
                found += 1
            elif _keeps_sums(node):
                decompose_node(work, node)
    return {"attentions recognised": found} if found else {}


def _attention(work: Work, node: Node) -> Node | None:
    weights, value = node.args
    if not is_tensor(weights) or not is_tensor(value) or not dtype(value).is_floating_point:
        return None
    if _keeps_sums(node):
        scores = Scores(nodes=[node])
        return _build(work, node, value, scores) if _walk(scores, weights, node) else None
    weights = _through_views(weights, node)
    softmax, empty = _softmax(_without_column(weights))
    if softmax is None:
        return None
    if softmax.args[1] not in (-1, rank(softmax) - 1) or not dtype(softmax.args[0]).is_floating_point:
        return None
    scores = Scores(nodes=[node, weights, softmax])  # type: ignore[list-item]
    above, reader = softmax.args[0], softmax
    if softmax is not weights and empty is None:
        above, reader, scores.sink = _with_sink(softmax)
    if not _walk(scores, above, reader, empty) or scores.query is None or scores.key is None:
        return None
    return _build(work, node, value, scores)


def _keeps_sums(node: Node) -> bool:
    return str(node.target) == "mycc.softmax_values.default"


def _without_column(weights: Node | None) -> Node | None:
    """The softmax of one more column, where the last one is cut off."""
    if not is_op(weights, "slice") or not is_tensor(weights.args[0]) or not only_user(weights.args[0], weights):
        return weights
    source: Node = weights.args[0]
    inner = arg(weights, 1, "dim", 0) in (-1, rank(weights) - 1) and arg(weights, 2, "start", 0) in (0, None)
    size, cut = expr(shape(source)[-1]), expr(shape(weights)[-1])
    return source if inner and arg(weights, 4, "step", 1) == 1 and size - cut == 1 else weights


def _with_sink(softmax: Node) -> tuple[Any, Node, Node | None]:
    """The scores of a softmax of scores and a sink, who reads them, and the sink: cat([scores, sink], -1), of which the
    largest of each row may have been taken."""
    joined, reader = softmax.args[0], softmax
    if is_op(joined, "sub") and len(joined.args) == 2 and only_user(joined, softmax):
        whole, largest = joined.args
        top = largest.args[0] if is_tensor(largest) and largest.target is operator.getitem else largest
        rows = is_op(top, "max", "amax") and top.args[0] is whole and only_user(largest, joined)
        if not rows or set(whole.users) != {joined, top} or set(top.users) - {largest, joined}:
            return None, softmax, None
        joined, reader = whole, joined
    elif not is_tensor(joined) or not only_user(joined, reader):
        return None, softmax, None
    if not is_op(joined, "cat") or len(joined.args[0]) != 2 or joined.args[1] not in (-1, rank(joined) - 1):
        return None, softmax, None
    above, sink = joined.args[0]
    return (above, joined, sink) if expr(shape(sink)[-1]) == 1 else (None, softmax, None)


def _softmax(weights: Node | None) -> tuple[Node | None, Node | None]:
    """The softmax that makes the weights, and the comparison that finds its rows without a key, if those become 0:

    where(all(s == -inf, -1, keepdim), 0, softmax(s))
    """
    if weights is None or is_op(weights, "softmax", "_softmax"):
        return weights, None
    if not is_op(weights, "where") or not is_tensor(weights.args[2]):
        return None, None
    every, zero, softmax = weights.args
    if not is_op(softmax, "softmax", "_softmax") or not is_op(every, "all") or not is_op(zero, "zeros_like"):
        return None, None
    equal = every.args[0]
    alone = set(softmax.users) <= {weights, zero} and only_user(every, weights) and only_user(equal, every)
    found = is_op(equal, "eq") and equal.args[0] is softmax.args[0] and equal.args[1] == -math.inf
    rows = every.args[1] in (-1, rank(equal) - 1) and arg(every, 2, "keepdim", False)
    return (softmax, equal) if alone and found and rows else (None, None)


def _through_views(node: Node, reader: Node) -> Node | None:
    """The node above reshapes and roundings that only this chain reads; None when something else reads it too."""
    while True:
        if not only_user(node, reader):
            return None
        if not is_op(node, "reshape", "expand") and not _is_rounding(node):
            return node
        reader, node = node, node.args[0]


def _is_rounding(node: Node) -> bool:
    """Whether a node has floats in another type."""
    floats = is_op(node, "_to_copy") and is_tensor(node.args[0]) and dtype(node.args[0]).is_floating_point
    return floats and dtype(node).is_floating_point


def _walk(scores: Scores, node: Any, reader: Node, beside: Node | None = None) -> bool:
    """From the softmax's input up to the product of queries and keys. beside: another reader of the input."""
    while is_tensor(node) and (only_user(node, reader) or set(node.users) == {reader, beside}):
        scores.nodes.append(node)
        if is_op(node, *_PRODUCTS):
            scores.query, scores.key = node.args
            return True
        if is_op(node, "baddbmm"):
            return _baddbmm(scores, node)
        above = _step(scores, node)
        if above is None:
            return False
        reader, node = node, above
    return False


def _step(scores: Scores, node: Node) -> Node | None:
    if is_op(node, "reshape"):
        same_rows = same_shape(shape(node)[-2:], shape(node.args[0])[-2:])
        return node.args[0] if same_rows else None
    if _is_rounding(node):
        return node.args[0]
    if is_op(node, "mul") and is_op(node.args[0], "tanh") and scores.softcap is None and scores.scale == 1.0:
        scores.softcap = number(node.args[1])
        return node.args[0] if scores.softcap else None
    if is_op(node, "tanh"):
        return _cap(scores, node.args[0])
    if is_op(node, "mul", "div") and number(node.args[1]) and len(node.args) == 2:
        factor = float(node.args[1])
        scores.scale *= factor if is_op(node, "mul") else 1.0 / factor
        return node.args[0]
    # what is filled in over a sum is as good as added beside it where it is -inf
    if is_op(node, "add") and all(value == -math.inf for _, _, value in scores.fills):
        return _added(scores, node)
    if is_op(node, "masked_fill"):
        return _filled(scores, node, node.args[0], node.args[1], True, node.args[2])
    if is_op(node, "where"):
        fill, kept = node.args[2], node.args[1]
        if _fill_value(fill) is not None:
            return _filled(scores, node, kept, node.args[0], False, fill)
        return _filled(scores, node, fill, node.args[0], True, kept)
    return None


def _cap(scores: Scores, inner: Any) -> Any:
    """The argument of a tanh, where that is a score divided by the cap; the division counts as no scale."""
    factor = number(inner.args[1]) if is_op(inner, "mul", "div") else None
    if scores.softcap is None or not factor:
        return None
    scores.scale = scores.softcap
    return inner if math.isclose(factor if is_op(inner, "div") else 1 / factor, scores.softcap, rel_tol=1e-6) else None


def _added(scores: Scores, node: Node) -> Node | None:
    pair = operands(node, "add")
    if pair is None or not all(is_tensor(p) for p in pair) or scores.scale != 1.0 or scores.softcap is not None:
        return None  # behind the mask a scale would apply to the mask too
    for above, mask in (pair, pair[::-1]):
        if _leads_to_product(above, node) and same_shape(shape(above), shape(node)) and _at(scores, node):
            scores.masks.append(mask)
            return above
    return None


#: a fill that takes a score's place is added to it instead, which is the same where the score is lost in the sum. A row
#: that is filled everywhere then has equal scores, as it has to
_ABSORBS = -1e30


def _filled(scores: Scores, node: Node, above: Any, mask: Any, holds: bool, value: Any) -> Node | None:
    fill = None if scores.softcap is not None else _fill_value(value)
    if fill is None or not is_tensor(above) or not is_tensor(mask) or dtype(mask) != torch.bool or scores.masks:
        return None
    if not same_shape(shape(above), shape(node)) or fill > _ABSORBS or not _at(scores, node):
        return None
    if scores.scale != 1.0 and not math.isinf(fill):
        return None
    scores.fills.append((mask, holds, fill))
    return above


def _fill_value(value: Any) -> float | None:
    """A number, or a node that is one number everywhere."""
    if isinstance(value, torch.fx.Node) and is_op(value, "full", "scalar_tensor", "full_like"):
        value = value.args[0] if is_op(value, "scalar_tensor") else value.args[1]
    return number(value)


def _at(scores: Scores, node: Node) -> bool:
    """Whether masks before this one were applied in the same shape."""
    if scores.shape is None:
        scores.shape = shape(node)
    return same_shape(scores.shape, shape(node))


def _leads_to_product(node: Any, reader: Node) -> bool:
    """Whether the chain above a node goes up to a matrix product through what _step knows."""
    for _ in range(8):
        if not is_tensor(node) or not only_user(node, reader):
            return False
        if is_op(node, *_PRODUCTS, "baddbmm"):
            return True
        if not is_op(node, "reshape", "mul", "div", "add", "tanh") and not _is_rounding(node):
            return False
        reader, node = node, node.args[0]
    return False


def _baddbmm(scores: Scores, node: Node) -> bool:
    """beta * mask + alpha * q @ k, with beta 1 or 0."""
    beta, alpha = arg(node, 3, "beta", 1), arg(node, 4, "alpha", 1)
    if beta not in (0, 1) or number(alpha) is None or (scores.fills and beta):
        return False
    if beta and scores.scale != 1.0:
        return False
    if beta:
        bias: Node = node.args[0]
        if scores.shape is not None and len(scores.shape) == 4:
            if rank(bias) != 3 or not same_shape(shape(bias)[:1], shape(node)[:1]):
                return False
            scores.flat_mask = bias
        elif _at(scores, node):
            scores.masks.append(bias)
        else:
            return False
    scores.scale *= float(alpha)
    scores.query, scores.key = node.args[1:3]
    return True


# building ------------------------------------------------------------------------------------------------------------
def _build(work: Work, node: Node, value: Node, scores: Scores) -> Node | None:
    query, key = scores.query, scores.key
    assert query is not None
    assert key is not None
    to = dtype(value)
    if any(dtype(t) != to and not _was(t, to) for t in (query, key)):
        return None
    query, key = (_as_it_was(work, t, to, node) for t in (query, key))
    q, k, v = shape(query), shape(key), shape(value)
    if not 3 <= len(q) <= 4 or len(k) != len(q) or len(v) != len(q):
        return None
    if not same_shape(q[:-2], k[:-2]) or not same_shape(q[:-2], v[:-2]):
        return None
    lead = scores.shape[:-2] if scores.shape is not None and len(scores.shape) != len(q) else None
    key_rows = _transposed(work, key, node)
    tensors = [_lifted(work, t, lead, node) for t in (query, key_rows, value)]
    mask = _mask(work, node, scores)
    val = node.meta["val"][0] if _keeps_sums(node) else node.meta["val"]
    if lead is not None:
        val = val.new_empty([*lead, *val.shape[-2:]])
    covers = [n for n in reversed(scores.nodes) if not is_op(n, "reshape")]
    if scores.sink is not None or scores.softcap is not None or _keeps_sums(node):
        if rank(tensors[0]) != 4 or lead is not None:
            return None
        args = (*tensors, mask, scores.sink, scores.scale, scores.softcap)
        sums = val.new_empty(val.shape[:-1], dtype=torch.float64 if val.dtype == torch.float64 else torch.float32)
        new = work.call(torch.ops.mycc.attention.default, args, like=node, val=(val, sums), covers=covers)
        if not _keeps_sums(node):
            work.replace(node, work.call(operator.getitem, (new, 0), like=node, val=val))
        else:
            work.replace(node, new)
        return new
    new = work.call(
        aten.scaled_dot_product_attention.default,
        (*tensors, mask, 0.0, False),
        {"scale": scores.scale},
        like=node,
        val=val,
        covers=covers,
    )
    out = new
    if lead is not None:
        out = work.call(aten.reshape.default, (new, work.sizes(shape(node))), like=node, val=node.meta["val"])
    work.replace(node, out)
    return new


_VIEWS = ("permute", "reshape", "expand")


def _was(operand: Node, to: torch.dtype) -> bool:
    """Whether a tensor has values of a narrower type alone."""
    while is_op(operand, *_VIEWS):
        operand = operand.args[0]
    return _is_rounding(operand) and dtype(operand.args[0]) == to


def _as_it_was(work: Work, operand: Node, to: torch.dtype, like: Node) -> Node:
    """A tensor of which `_was` holds, or that is of the type, in that type: products of such values are exact."""
    if dtype(operand) == to:
        return operand
    if not is_op(operand, *_VIEWS):
        source: Node = operand.args[0]
        return source
    source = _as_it_was(work, operand.args[0], to, like)
    return work.call(operand.target, (source, *operand.args[1:]), like=like)


def _transposed(work: Work, key: Node, node: Node) -> Node:
    """The keys as rows: what key is the transpose of, or its transpose."""
    n = rank(key)
    order = [*range(n - 2), n - 1, n - 2]
    if is_op(key, "permute") and list(key.args[1]) == order:
        return key.args[0]
    return work.call(aten.permute.default, (key, order), like=node)


def _lifted(work: Work, t: Node, lead: Any, node: Node) -> Node:
    """With the leading dimensions that the masks have: [b*h, m, d] as [b, h, m, d]."""
    if lead is None:
        return t
    sizes = work.sizes([*lead, *shape(t)[-2:]])
    return work.call(aten.reshape.default, (t, sizes), like=node)


def _mask(work: Work, node: Node, scores: Scores) -> Node | None:
    """One mask of all: a bool one for a single -inf fill, else the sum of what is added."""
    assert scores.query is not None
    masks = [_added_mask(work, node, m, scores) for m in scores.masks]
    if scores.flat_mask is not None and scores.shape is not None:
        masks.append(_lifted(work, _added_mask(work, node, scores.flat_mask, scores), scores.shape[:-2], node))
    for mask, holds, fill in scores.fills:
        if not masks and len(scores.fills) == 1 and math.isinf(fill):
            return _allowed(work, node, mask, holds)
        masks.append(_as_added(work, node, mask, holds, fill, dtype(scores.query)))
    total: Node | None = None
    for mask in masks:
        total = mask if total is None else work.call(aten.add.Tensor, (total, mask), like=node)
    return total


def _added_mask(work: Work, node: Node, mask: Node, scores: Scores) -> Node:
    """A mask in the dtype of the scores (bool masks count as numbers when they are added)."""
    assert scores.query is not None
    to = dtype(mask) if dtype(mask) == torch.float32 else dtype(scores.query)
    return mask if dtype(mask) == to else work.call(aten._to_copy.default, (mask,), {"dtype": to}, like=node)


def _allowed(work: Work, node: Node, mask: Node, holds: bool) -> Node:
    """True where the score counts."""
    return work.call(aten.logical_not.default, (mask,), like=node) if holds else mask


def _as_added(work: Work, node: Node, mask: Node, holds: bool, fill: float, to: torch.dtype) -> Node:
    zero, low = (work.call(aten.full.default, ([], v), {"dtype": to}, like=node) for v in (0.0, fill))
    ends = (low, zero) if holds else (zero, low)
    return work.call(aten.where.self, (mask, *ends), like=node)
