"""Pass: position and mask tensors that are known formulas, in their shortest spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from ..node import Node
from ..patterns import (
    dtype,
    is_constant,
    is_op,
    is_tensor,
    op,
    rank,
    shape,
)
from ..sizes import bounds, expr, same_shape
from ..work import Work, aten
from .index_forms import Affine, Choice, Form, flipped
from .index_values import IndexValues, plain_index

#: operators that generate a value from its indices without reading memory
_CHEAP = (
    "arange", "full", "zeros", "ones", "scalar_tensor", "add", "sub", "mul", "neg", "eq", "ne", "lt", "le", "gt",
    "ge", "bitwise_and", "bitwise_or", "bitwise_not", "logical_and", "logical_or", "logical_not", "where",
    "unsqueeze", "squeeze", "reshape", "expand", "permute", "select", "slice", "_to_copy",
)  # fmt: skip


def known_values(work: Work) -> dict[str, int]:
    """diff, cumsum, index, gather, eq over aranges     ->   full(True), arange, or ge(arange, arange)
       embedding(table, arange(s))                      ->   slice(table, 0, s)            (a view)
       embedding(table, zeros)                          ->   expand(select(table, 0))      (a view)
       index(x, [arange(b) as [b, 1], arange(s) as [1, s]])   ->   x                   (a view)
       bitwise_and(x, full(True)), mul(x, ones)         ->   x
       sdpa(q, k, v, full(True))                        ->   sdpa(q, k, v)
       sdpa(q, k, v, ge(i, j))                          ->   sdpa(q, k, v, is_causal=True)

    and the same of mycc::trained_attention and its gradient.

    Proved for all values of the size symbols (index_values.py); a table is only sliced where the positions provably
    stay inside it. Needs NORMAL; establishes KNOWN: no computed position or mask is left that has a formula.
    """
    values = IndexValues(work.constants, work.ranges)
    counts = {
        "masks recognised": _done(work, values, attention_mask, (n for n in work.nodes() if _places(n) is not None)),
        "position lookups": _done(work, values, _lookup, _calls(work, "embedding")),
        "index lookups": _done(work, values, _index_as_view, _calls(work, "index")),
        "neutral operands": _done(work, values, _neutral, _calls(work, *_NEUTRAL)),
        "index formulas": _done(work, values, _rebuild, work.nodes()),
    }
    return {k: v for k, v in counts.items() if v}


def _done(
    work: Work, values: IndexValues, change: Callable[[Work, IndexValues, Node], bool], nodes: Iterator[Node]
) -> int:
    """How many nodes a change was made to; the constants whose formulas it stands on have decided about the graph."""
    count = 0
    for node in nodes:
        constants = _formulas(values, node)
        if change(work, values, node):
            work.decided(constants)
            count += 1
    return count


def _formulas(values: IndexValues, node: Node) -> set[str]:
    """The constants with a formula that a node's operands are made from."""
    found: set[str] = set()
    pending = [n for n in node.all_input_nodes if n.op == "get_attr" or n.op == "call_function"]
    seen = set(pending)
    while pending:
        n = pending.pop()
        if values.form(n) is None:
            continue
        if n.op == "get_attr":
            found.add(str(n.target))
        new = [m for m in n.all_input_nodes if m not in seen]
        seen.update(new)
        pending.extend(new)
    return found


def _calls(work: Work, *names: str) -> Iterator[Node]:
    return (n for n in work.nodes() if is_op(n, *names))


# attention masks -----------------------------------------------------------------------------------------------------
class _Places(NamedTuple):
    """Where an attention has its queries, its mask, and whether it is causal among its arguments; keys are behind the
    queries."""

    query: int
    mask: int
    causal: int


_TRAINED = {
    "mycc.trained_attention.default": _Places(0, 3, 6),
    "mycc.attention_gradient.default": _Places(1, 7, 10),
}


def _places(node: Node) -> _Places | None:
    return _Places(0, 3, 5) if is_op(node, "scaled_dot_product_attention") else _TRAINED.get(str(node.target))


def attention_mask(work: Work, values: IndexValues, node: Node) -> bool:
    """Drops a mask that allows everything; turns one that allows key <= query into is_causal."""
    at = _places(node)
    if at is None:
        return False  # mycc::attention takes sinks and no is_causal
    args = list(node.args) + [None, 0.0, False][len(node.args) - 3 :]
    mask = args[at.mask]
    if not isinstance(mask, Node) or args[at.causal]:
        return False
    form = values.form(mask)
    if not isinstance(form, Choice):
        return False
    if form.uniform and _allows(form.yes):
        args[at.mask] = None
    elif _is_causal(form, mask) and _covers_scores(mask, args[at.query], args[at.query + 1]):
        args[at.mask], args[at.causal] = None, True
    else:
        return False
    node.args = tuple(args)
    return True


def _allows(value: Any) -> bool:
    """Whether an element of a mask leaves the score as it is."""
    return value is True or (isinstance(value, float) and value == 0.0)


#: scores this far below others have weight exp(-1e9 + ..) = 0 in float32 and float64
_FORBIDDING = -1e9


def _forbids(value: Any) -> bool:
    return value is False or (isinstance(value, float) and value <= _FORBIDDING)


def _is_causal(form: Choice, mask: Node) -> bool:
    """Exactly one condition: row - column >= 0. (Every row then allows its own column, so no row is all forbidden.)"""
    if len(form.conditions) != 1 or rank(mask) < 2:
        return False
    allowing = form if _allows(form.yes) else flipped(form)
    if allowing is None or not (_allows(allowing.yes) and _forbids(allowing.no)):
        return False
    (condition,) = allowing.conditions
    return condition == Affine((0,) * (form.rank - 2) + (1, -1), 0)


def _covers_scores(mask: Node, query: Node, key: Node) -> bool:
    """Whether the mask's last two dimensions are the queries and the keys, not broadcast."""
    return same_shape(shape(mask)[-2:], (shape(query)[-2], shape(key)[-2]))


# lookups -------------------------------------------------------------------------------------------------------------
def _lookup(work: Work, values: IndexValues, node: Node) -> bool:
    """embedding of positions as rows of the table taken by a view."""
    table, index = node.args[:2]
    form = values.affine(index)
    if form is None or not isinstance(table, Node):
        return False
    low, high = form.bounds(shape(index), work.ranges)
    rows = bounds(expr(shape(table)[0]), work.ranges)[0]
    if low < 0 or high >= rows:
        return False  # left to the run-time check
    moving = [d for d, step in enumerate(form.steps) if step != 0]
    if len(moving) > 1 or (moving and form.steps[moving[0]] != 1) or not isinstance(form.const, int):
        return False
    view = _row(work, node, table, form.const) if not moving else _rows(work, node, table, form.const, moving[0])
    sizes = work.sizes(shape(node))
    new = work.call(aten.expand.default, (view, sizes), like=node, val=node.meta["val"], covers=[node])
    work.replace(node, new)
    return True


def _row(work: Work, node: Node, table: Node, index: int) -> Node:
    row = work.call(aten.select.int, (table, 0, index), like=node)
    return _with_rank(work, node, row, rank(node) - 1)


def _rows(work: Work, node: Node, table: Node, first: int, dim: int) -> Node:
    count = shape(node)[dim]
    end = work.size(expr(expr(count) + first))
    rows = work.call(aten.slice.Tensor, (table, 0, first, end), like=node)
    return _with_rank(work, node, rows, dim)


def _with_rank(work: Work, node: Node, rows: Node, dim: int) -> Node:
    """The table's part with its row dimension (if any) at `dim` and the features last, 1 elsewhere."""
    lead = shape(rows)[:-1]
    wanted = [1] * (rank(node) - 1)
    sizes: list[Any] = list(wanted)
    if lead:
        sizes[dim] = work.size(lead[0])
    sizes.append(work.size(shape(rows)[-1]))
    return work.call(aten.reshape.default, (rows, sizes), like=node) if len(sizes) != rank(rows) else rows


def _index_as_view(work: Work, values: IndexValues, node: Node) -> bool:
    """index of a tensor at its own positions: dimensions moved apart and broadcast."""
    source, indices = node.args[0], node.args[1]
    if len(indices) != rank(source) or any(i is None for i in indices):
        return False
    dims = [plain_index(values, i, node) for i in indices]
    rising = [d for d in dims if d is not None]
    if len(rising) != len(dims) or rising != sorted(set(rising)):
        return False
    spread: list[Any] = [1] * rank(node)
    for own, d in zip(shape(source), rising, strict=True):
        if expr(own) != expr(shape(node)[d]):
            return False
        spread[d] = work.size(own)
    view = work.call(aten.reshape.default, (source, spread), like=node)
    work.replace(node, _expanded(work, node, view, dtype(node)))
    return True


# neutral operands ----------------------------------------------------------------------------------------------------
_NEUTRAL = {"bitwise_and": True, "logical_and": True, "bitwise_or": False, "logical_or": False, "mul": 1}


def _neutral(work: Work, values: IndexValues, node: Node) -> bool:
    """x & True, x | False, x * 1 -> x, where the other operand is made by the graph.

    Weights that happen to be 1 stay: what is compiled must not hang on how a model was initialised.
    """
    neutral = _NEUTRAL[op(node)]
    if len(node.args) != 2 or (dtype(node) == torch.bool) != isinstance(neutral, bool):
        return False
    for x, other in (node.args, node.args[::-1]):
        if not is_tensor(x) or not isinstance(other, Node) or is_constant(other) or dtype(x) != dtype(node):
            continue
        form = values.choice(other)
        if form is not None and form.uniform and form.yes == neutral:
            work.replace(node, _expanded(work, node, x, dtype(node)))
            return True
    return False


# formulas ------------------------------------------------------------------------------------------------------------
def _rebuild(work: Work, values: IndexValues, node: Node) -> bool:
    """Spells a known tensor anew where it is read by something unknown and comes from more than index arithmetic."""
    if node.op != "call_function" or not is_tensor(node) or not node.users:
        return False
    if dtype(node).is_floating_point and not is_op(node, "where", "masked_fill", "tril", "triu", "_to_copy"):
        return False
    form = values.form(node)
    if form is None or all(values.form(user) is not None for user in node.users) or not _is_costly(node):
        return False
    work.replace(node, _build(work, node, form))
    return True


def _is_costly(node: Node) -> bool:
    """Whether anything above the node is more than arithmetic on indices."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        n = stack.pop()
        if n in seen or not is_tensor(n):
            continue
        seen.add(n)
        if n.op == "call_function" and op(n) not in _CHEAP:
            return True
        stack.extend(n.all_input_nodes)
    return False


def _build(work: Work, node: Node, form: Form) -> Node:
    if isinstance(form, Choice):
        return _build_choice(work, node, form)
    return _expanded(work, node, _sum(work, node, form, torch.int64), dtype(node))


def _expanded(work: Work, node: Node, value: Node, to: torch.dtype) -> Node:
    if dtype(value) != to:
        value = work.call(aten._to_copy.default, (value,), {"dtype": to}, like=node)
    if same_shape(shape(value), shape(node)):
        return value
    return work.call(aten.expand.default, (value, work.sizes(shape(node))), like=node, val=node.meta["val"])


def _build_choice(work: Work, node: Node, form: Choice) -> Node:
    if form.uniform:
        args = (work.sizes(shape(node)), form.yes)
        return work.call(
            aten.full.default, args, {"dtype": dtype(node)}, like=node, val=node.meta["val"], covers=[node]
        )
    masks = [_holds(work, node, c) for c in sorted(form.conditions, key=str)]
    mask = masks[0]
    for other in masks[1:]:
        mask = work.call(aten.bitwise_and.Tensor, (mask, other), like=node)
    if (form.yes, form.no) != (True, False) or dtype(node) != torch.bool:
        ends = [work.call(aten.full.default, ([], v), {"dtype": dtype(node)}, like=node) for v in (form.yes, form.no)]
        mask = work.call(aten.where.self, (mask, *ends), like=node)
    return _expanded(work, node, mask, dtype(node))


def _holds(work: Work, node: Node, condition: Affine) -> Node:
    """condition >= 0, with the negative steps on the right side: row >= column."""
    right = Affine(tuple(-s if _negative(s, work) else 0 for s in condition.steps), 0)
    left = condition.plus(right)
    return work.call(
        aten.ge.Tensor, (_sum(work, node, left, torch.int64), _sum(work, node, right, torch.int64)), like=node
    )


def _negative(step: Any, work: Work) -> bool:
    return bounds(expr(step), work.ranges)[1] < 0


def _sum(work: Work, node: Node, form: Affine, kind: torch.dtype) -> Node:
    """const + step * arange per dimension, each along its own dimension."""
    total: Node | None = None
    for dim, step in enumerate(form.steps):
        if step != 0:
            total = _plus(work, node, total, _index_along(work, node, dim, step, kind))
    if total is None:
        return work.call(aten.full.default, ([1] * form.rank, work.size(form.const)), {"dtype": kind}, like=node)
    if form.const == 0:
        return total
    return work.call(aten.add.Tensor, (total, work.size(form.const)), like=node)


def _plus(work: Work, node: Node, a: Node | None, b: Node) -> Node:
    return b if a is None else work.call(aten.add.Tensor, (a, b), like=node)


def _index_along(work: Work, node: Node, dim: int, step: Any, kind: torch.dtype) -> Node:
    size = work.size(shape(node)[dim])
    index = work.call(aten.arange.start_step, (0, size, 1), {"dtype": kind}, like=node)
    sizes: list[Any] = [1] * rank(node)
    sizes[dim] = size
    if rank(node) == 1:
        return index if step == 1 else work.call(aten.mul.Tensor, (index, work.size(step)), like=node)
    index = work.call(aten.reshape.default, (index, sizes), like=node)
    return index if step == 1 else work.call(aten.mul.Tensor, (index, work.size(step)), like=node)
