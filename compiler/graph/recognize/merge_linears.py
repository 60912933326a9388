"""Pass: linears of the same input as one, with their weights stacked."""

from __future__ import annotations

from typing import Any

import torch

from ...model.origins import Known, applied
from ..node import Node
from ..patterns import arg, dtype, is_constant, is_op, rank
from ..sizes import expr
from ..work import Work, aten


def merge_linears(work: Work) -> dict[str, int]:
    """q = linear(x, wq, bq)             y = linear(x, [wq; wk; wv], [bq; bk; bv])
       k = linear(x, wk, bk)      ->     q = slice(y, -1, 0, nq)
       v = linear(x, wv)                 k = slice(y, -1, nq, nq + nk), ...                      (views; bv = 0)

    One pass over x instead of three, and one kernel. The weights must be constants that nothing else reads (a tied
    embedding is never copied); missing biases are zeros. Needs LINEAR; the stacked weights replace the old ones, so
    the package does not grow.
    """
    merged = 0
    for node in work.nodes():
        group = _group(node)
        if len(group) > 1:
            _merge(work, group)
            merged += len(group)
    return {"linears merged": merged} if merged else {}


def _group(x: Node) -> list[Node]:
    """The linears that read x, in the order of the graph, and that may be merged."""
    found = [u for u in x.users if is_op(u, "linear") and u.args[0] is x and _mergeable(u)]
    return [u for u in found if dtype(u.args[1]) == dtype(found[0].args[1])]


def _mergeable(node: Node) -> bool:
    weight, bias = node.args[1], arg(node, 2, "bias")
    own = is_constant(weight) and len(weight.users) == 1
    return own and (bias is None or is_constant(bias)) and isinstance(expr(node.meta["val"].shape[-1]), int)


def _merge(work: Work, group: list[Node]) -> None:
    order = {node: i for i, node in enumerate(work.graph.nodes)}
    group = sorted(group, key=order.__getitem__)
    first = group[0]
    names = [str(n.args[1].target) for n in group]
    known = [work.known(n.args[1]) for n in group]
    matrices = [own.tensor for own in known]
    weight = work.constant(merged_name(names), applied("aten.cat.default", known), like=first)
    args: list[Any] = [first.args[0], weight]
    bias = _bias(work, group, matrices)
    if bias is not None:
        args.append(work.constant(f"{weight.target}_bias", bias, like=first))
    total = sum(m.shape[0] for m in matrices)
    val = first.meta["val"].new_empty([*first.meta["val"].shape[:-1], total])
    product = work.call(aten.linear.default, args, like=first, val=val, covers=group)
    parts, start = [], 0
    for node, matrix in zip(group, matrices, strict=True):
        end = start + matrix.shape[0]
        part = (product, rank(node) - 1, start, end)
        parts.append(work.call(aten.slice.Tensor, part, like=node, val=node.meta["val"], before=first))
        start = end
    for node, new in zip(group, parts, strict=True):
        work.replace(node, new)


def merged_name(names: list[str]) -> str:
    """A name that tells what was merged: the common beginning and what differs."""
    start = len(_common_prefix(names))
    return "_and_".join([names[0], *(name[start:] or name for name in names[1:])])[:120]


def _common_prefix(names: list[str]) -> str:
    prefix = names[0]
    for name in names[1:]:
        while not name.startswith(prefix):
            prefix = prefix[:-1]
    return prefix


def _bias(work: Work, group: list[Node], matrices: list[torch.Tensor]) -> Known | None:
    biases = [arg(n, 2, "bias") for n in group]
    if all(b is None for b in biases):
        return None
    parts = [
        applied("aten.zeros.default", [m.shape[0]], dtype=m.dtype) if b is None else work.known(b)
        for b, m in zip(biases, matrices, strict=True)
    ]
    return applied("aten.cat.default", parts)
