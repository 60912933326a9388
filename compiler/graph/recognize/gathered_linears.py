"""Pass: linears of rows that are looked up, before the rows are looked up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from ...model.origins import applied
from ..node import Node
from ..patterns import (
    arg,
    dtype,
    is_constant,
    is_op,
    only_user,
    rank,
    shape,
)
from ..sizes import expr
from ..work import Work, aten

#: rows that are looked up for each row that there is; where there are fewer, only those are multiplied
LEAST_REPEATED = 2
#: columns of a table: to look up the product's rows costs more than the product of fewer
LEAST_COLUMNS = 8


def gathered_linears(work: Work) -> dict[str, int]:
    """linear(h[i], w, b)                          ->     linear(h, w, b)[i]
       linear(cat(h[i], h[j], e), w, b)            ->     linear(h, w1, b)[i] + linear(h, w2)[j] + linear(e, w3)

    where far more rows are looked up than there are (messages along the edges of a graph), so that each row is
    multiplied once. Of sizes that are not known a table that a cat looks up twice is taken for such. Needs LINEAR; w is
    cut into new constants, so that nothing else may read it where there is a cat.
    """
    count = sum(_rewrite(work, node) for node in work.nodes() if is_op(node, "linear"))
    return {"linears before lookups": count} if count else {}


def _rewrite(work: Work, node: Node) -> bool:
    x, weight, bias = node.args[0], node.args[1], arg(node, 2, "bias")
    parts = _parts(node, x, weight) or (x,)
    tables = [_table(part) for part in parts]
    early = [t is not None and _repeats(p, t, tables.count(t)) for p, t in zip(parts, tables, strict=True)]
    if not any(early):
        return False
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + int(expr(shape(part)[-1])))
    terms: list[Node] = []
    for i, part in enumerate(parts):
        if early[i]:
            own = weight if len(parts) == 1 else _columns(work, node, weight, [range(ends[i], ends[i + 1])])
            terms.append(_looked_up(work, node, part, own, None if terms else bias))
    late = [i for i, found in enumerate(early) if not found]
    if late:
        rest = parts[late[0]]
        if len(late) > 1:
            rest = work.call(aten.cat.default, ([parts[i] for i in late], rank(x) - 1), like=node)
        own = _columns(work, node, weight, [range(ends[i], ends[i + 1]) for i in late])
        terms.append(work.call(aten.linear.default, (rest, own), like=node, covers=[node]))
    total = terms[0]
    for term in terms[1:]:
        total = work.call(aten.add.Tensor, (total, term), like=node, val=node.meta["val"], covers=[node])
    work.replace(node, total)
    return True


def _parts(node: Node, x: Any, weight: Any) -> Sequence[Node]:
    """What is joined along the columns for this linear alone; nothing when its weight cannot be cut."""
    if not is_op(x, "cat") or not only_user(x, node) or not is_constant(weight) or len(weight.users) != 1:
        return ()
    parts, dim = x.args[0], arg(x, 1, "dim", 0)
    alike = all(dtype(p) == dtype(x) and rank(p) == rank(x) and isinstance(expr(shape(p)[-1]), int) for p in parts)
    return parts if dim in (-1, rank(x) - 1) and alike else ()


def _table(part: Any) -> Node | None:
    """What whole rows are looked up of."""
    if is_op(part, "index"):
        indices = part.args[1]
        whole = len(indices) < rank(part.args[0]) or indices[-1] is None
        plain = all(i is None or dtype(i) in (torch.int64, torch.int32) for i in indices)
        return part.args[0] if whole and plain else None
    if is_op(part, "index_select"):
        return part.args[0] if rank(part) > 1 and part.args[1] not in (-1, rank(part) - 1) else None
    return None


def _repeats(part: Node, table: Node, times: int) -> bool:
    """Whether a product of the table is less work than one of the rows that are looked up."""
    columns = expr(shape(table)[-1])
    if not isinstance(columns, int) or columns < LEAST_COLUMNS:
        return False
    rows, own = (math.prod(expr(n) for n in shape(t)[:-1]) for t in (part, table))
    more = sympy.expand(rows - LEAST_REPEATED * own)
    return bool(more >= 0) if more.is_number else times > 1


def _columns(work: Work, node: Node, weight: Node, columns: Sequence[range]) -> Node:
    name = str(weight.target)
    whole = work.known(weight)
    parts = [applied("aten.slice.Tensor", whole, 1, c.start, c.stop) for c in columns]
    cut = applied("aten.cat.default", parts, 1)
    return work.constant(f"{name}_{columns[0].start}", cut, like=node)


def _looked_up(work: Work, node: Node, part: Node, weight: Node, bias: Any) -> Node:
    """The same rows of the table's product."""
    args = (part.args[0], weight) if bias is None else (part.args[0], weight, bias)
    product = work.call(aten.linear.default, args, like=node, covers=[node])
    return work.call(part.target, (product, *part.args[1:]), part.kwargs, like=node, covers=[part])
