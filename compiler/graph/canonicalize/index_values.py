"""Which integer and mask tensors of a graph are known formulas of their indices (index_forms.py).

Evaluates on demand, backwards from the node that is asked about. What transformers builds for "all tokens attend to all
earlier ones" goes through arange, diff, cumsum, gathers and comparisons, and comes out as one condition: i - j >= 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..node import Node
from ..patterns import arg, dtype, op, rank, shape
from ..sizes import expr
from .constant_forms import constant_form
from .index_forms import (
    Affine,
    Choice,
    Form,
    Ranges,
    as_affine,
    as_choice,
    combined,
    compared,
    settled,
    uniform,
    unit,
)
from .index_views import VIEWS, number_of

_DEPTH = 100  # operators between a mask and its inputs; bounds the recursion


class IndexValues:
    """Forms of nodes, remembered. Valid as long as the graph above the asked nodes does not change."""

    def __init__(self, constants: Mapping[str, torch.Tensor], ranges: Ranges) -> None:
        self.constants, self.ranges = constants, ranges
        self._known: dict[Node, Form | None] = {}
        self._depth = 0

    def form(self, node: Any) -> Form | None:
        """The form of a node's tensor, None when it has none that is known."""
        if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            return None
        if node not in self._known:
            if self._depth >= _DEPTH:
                return None
            self._depth += 1
            self._known[node] = self._tidy(node, self._evaluate(node))
            self._depth -= 1
        return self._known[node]

    def _tidy(self, node: Node, form: Form | None) -> Form | None:
        if form is None:
            return None
        form = form.padded(rank(node)).without(d for d, size in enumerate(shape(node)) if expr(size) == 1)
        return settled(form, shape(node), self.ranges) if isinstance(form, Choice) else form

    def _evaluate(self, node: Node) -> Form | None:
        if node.op == "get_attr":
            return constant_form(self.constants[str(node.target)])
        if node.op != "call_function":
            return None
        rule = _RULES.get(op(node))
        return rule(self, node) if rule is not None else None

    def choice(self, value: Any) -> Choice | None:
        """A number or node as a Choice."""
        if isinstance(value, (bool, int, float)):
            return uniform(0, value)
        form = self.form(value)
        return None if form is None else as_choice(form)

    def affine(self, value: Any) -> Affine | None:
        """An integer, size or node as an Affine."""
        if isinstance(value, int) and not isinstance(value, bool):
            return Affine((), value)
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.SymInt):
            return Affine((), expr(value.meta["val"]))
        form = self.form(value)
        return None if form is None else as_affine(form)


def _is_integer(node: Node) -> bool:
    return not dtype(node).is_floating_point and not dtype(node).is_complex and dtype(node) != torch.bool


# creation ------------------------------------------------------------------------------------------------------------
def _arange(values: IndexValues, node: Node) -> Form | None:
    if not _is_integer(node):
        return None
    start = number_of(node.args[0]) if len(node.args) > 1 else 0
    step = number_of(node.args[2]) if len(node.args) > 2 else number_of(node.kwargs.get("step", 1))
    return Affine((step,), start) if isinstance(step, int) else None


def _filled(position: int) -> Callable[[IndexValues, Node], Form | None]:
    def rule(values: IndexValues, node: Node) -> Form | None:
        return _of_dtype(node, number_of(node.args[position]))

    return rule


def _constant(value: int) -> Callable[[IndexValues, Node], Form | None]:
    return lambda values, node: _of_dtype(node, value)


def _of_dtype(node: Node, value: Any) -> Form | None:
    if _is_integer(node):
        return Affine((0,) * rank(node), expr(value)) if not isinstance(value, float) else None
    if not isinstance(value, (bool, int, float)):
        return None
    return uniform(rank(node), bool(value) if dtype(node) == torch.bool else float(value))


# views ---------------------------------------------------------------------------------------------------------------
def _view(values: IndexValues, node: Node) -> Form | None:
    """Any view as a substitution of indices: source index d as an Affine of the result's indices."""
    source: Node = node.args[0]
    form = values.form(source)
    if form is None:
        return None
    if form.uniform:
        return _reranked(form, rank(node))
    indices = VIEWS[op(node)](node, source)
    return None if indices is None else form.at(indices, rank(node))


def _reranked(form: Form, n: int) -> Form:
    """A uniform form at another rank."""
    return Affine((0,) * n, form.const) if isinstance(form, Affine) else uniform(n, form.yes)


def _same_values(values: IndexValues, node: Node) -> Form | None:
    return values.form(node.args[0])


def _repeat(values: IndexValues, node: Node) -> Form | None:
    form = values.form(node.args[0])
    return _reranked(form, rank(node)) if form is not None and form.uniform else None


def _cast(values: IndexValues, node: Node) -> Form | None:
    form = values.form(node.args[0])
    if form is None:
        return None
    if isinstance(form, Affine):
        if _is_integer(node):
            return form
        choice = as_choice(form)
        return None if choice is None else choice.map(lambda v: _convert(v, dtype(node)))
    if _is_integer(node) and not all(_fits(value, dtype(node)) for value in (form.yes, form.no)):
        return None
    return _integer(form.map(lambda v: _convert(v, dtype(node))))


def _fits(value: Any, to: torch.dtype) -> bool:
    """Whether an integer type holds the whole part of a number; what it makes of others depends on the device."""
    bounds = torch.iinfo(to)
    return not isinstance(value, float) or (math.isfinite(value) and bounds.min <= int(value) <= bounds.max)


def _convert(value: Any, to: torch.dtype) -> Any:
    if to == torch.bool:
        return bool(value)
    if to.is_floating_point:
        return float(torch.tensor(value, dtype=torch.float64).to(to).item())
    return int(value)


def _integer(form: Choice) -> Form:
    return as_affine(form) or form


# arithmetic ----------------------------------------------------------------------------------------------------------
def _add(sign: int) -> Callable[[IndexValues, Node], Form | None]:
    def rule(values: IndexValues, node: Node) -> Form | None:
        a, b = node.args[0], node.args[1]
        alpha = number_of(arg(node, 2, "alpha", 1))
        if not isinstance(alpha, int):
            return None
        if _is_integer(node):
            left, right = values.affine(a), values.affine(b)
            if left is not None and right is not None:
                return left.plus(right, sign * alpha)
        return _arithmetic(values, node, lambda x, y: x + sign * alpha * y)

    return rule


def _rsub(values: IndexValues, node: Node) -> Form | None:
    return _arithmetic(values, node, lambda x, y: y - x)


def _mul(values: IndexValues, node: Node) -> Form | None:
    a, b = node.args
    if _is_integer(node):
        for one, other in ((a, b), (b, a)):
            form, factor = values.affine(one), values.affine(other)
            if form is not None and factor is not None and factor.uniform and isinstance(factor.const, int):
                return form.times(factor.const)
    return _arithmetic(values, node, operator.mul)


def _arithmetic(values: IndexValues, node: Node, function: Callable[[Any, Any], Any]) -> Form | None:
    a, b = values.choice(node.args[0]), values.choice(node.args[1])
    if a is None or b is None:
        return None
    result = combined(a, b, lambda x, y: _convert(function(x, y), dtype(node)))
    return None if result is None else (_integer(result) if _is_integer(node) else result)


def _negative(values: IndexValues, node: Node) -> Form | None:
    form = values.form(node.args[0])
    if isinstance(form, Affine):
        return form.times(-1)
    return None if form is None else form.map(operator.neg)


def _compare(name: str) -> Callable[[IndexValues, Node], Form | None]:
    function = getattr(operator, name)

    def rule(values: IndexValues, node: Node) -> Form | None:
        a, b = values.affine(node.args[0]), values.affine(node.args[1])
        if a is not None and b is not None:
            return compared(a, b, name, shape(node), values.ranges)
        left, right = values.choice(node.args[0]), values.choice(node.args[1])
        return None if left is None or right is None else combined(left, right, function)

    return rule


def _logical(function: Callable[[bool, bool], bool]) -> Callable[[IndexValues, Node], Form | None]:
    def rule(values: IndexValues, node: Node) -> Form | None:
        if dtype(node) != torch.bool:
            return None
        a, b = values.choice(node.args[0]), values.choice(node.args[1])
        return None if a is None or b is None else combined(a, b, lambda x, y: function(bool(x), bool(y)))

    return rule


def _not(values: IndexValues, node: Node) -> Form | None:
    form = values.choice(node.args[0])
    return None if form is None or dtype(node) != torch.bool else form.map(lambda v: not v)


def _where(values: IndexValues, node: Node) -> Form | None:
    return _chosen(values, node, node.args[0], node.args[1], node.args[2])


def _masked_fill(values: IndexValues, node: Node) -> Form | None:
    return _chosen(values, node, node.args[1], node.args[2], node.args[0])


def _chosen(values: IndexValues, node: Node, condition: Any, yes: Any, no: Any) -> Form | None:
    mask = values.choice(condition)
    if mask is None:
        return None
    if mask.uniform:
        picked = yes if mask.yes else no
        return values.choice(picked) if isinstance(picked, (int, float)) else values.form(picked)
    a, b = values.choice(yes), values.choice(no)
    if a is None or b is None or not a.uniform or not b.uniform:
        return None
    return mask.map(lambda holds: _convert(a.yes if holds else b.yes, dtype(node)))


def _triangle(sign: int) -> Callable[[IndexValues, Node], Form | None]:
    """tril keeps row - column + diagonal >= 0, triu column - row - diagonal >= 0; zero elsewhere."""

    def rule(values: IndexValues, node: Node) -> Form | None:
        form, n = values.choice(node.args[0]), rank(node)
        if form is None or not form.uniform:
            return None
        diagonal = number_of(arg(node, 1, "diagonal", 0))
        steps = (0,) * (n - 2) + (sign, -sign)
        condition = Affine(steps, sign * diagonal)
        zero = _convert(0, dtype(node))
        return Choice(n, frozenset([condition]), form.yes, zero)

    return rule


# along a dimension ---------------------------------------------------------------------------------------------------
def _cumsum(values: IndexValues, node: Node) -> Form | None:
    """cumsum of a value that is uniform: c, 2c, 3c, ..."""
    form = values.choice(node.args[0])
    if form is None or not form.uniform or not _is_integer(node):
        return None
    dim, value = node.args[1] % rank(node), int(form.yes)
    return Affine(tuple(value * int(d == dim) for d in range(rank(node))), value)


def _diff(values: IndexValues, node: Node) -> Form | None:
    """First differences of an Affine: its step, also at the seam of what is put before or behind it."""
    x = values.affine(node.args[0])
    n, dim = arg(node, 1, "n", 1), arg(node, 2, "dim", -1) % rank(node)
    before, behind = arg(node, 3, "prepend"), arg(node, 4, "append")
    if x is None or n != 1 or behind is not None:
        return None
    result = Affine((0,) * rank(node), x.steps[dim])
    if before is None:
        return result
    first = values.affine(before)
    if first is None or expr(shape(before)[dim]) != 1:
        return None
    start = Affine(tuple(0 if d == dim else s for d, s in enumerate(x.steps)), x.const)
    single = Affine(tuple(0 if d == dim else s for d, s in enumerate(first.steps)), first.const)
    return result if start.plus(single, -1) == result else None


def _index(values: IndexValues, node: Node) -> Form | None:
    source: Node = node.args[0]
    wanted: Any = node.args[1]
    form = values.form(source)
    if form is not None and form.uniform:
        return _reranked(form, rank(node))
    if form is None or len(wanted) != rank(source) or any(i is None for i in wanted):
        return None
    indices = [_valid_index(values, i, node) for i in wanted]
    known = [i for i in indices if i is not None]
    return form.at(known, rank(node)) if len(known) == len(indices) else None


def _gather(values: IndexValues, node: Node) -> Form | None:
    form = values.form(node.args[0])
    if form is not None and form.uniform:
        return _reranked(form, rank(node))
    index = _valid_index(values, node.args[2], node)
    if form is None or index is None:
        return None
    n = rank(node)
    indices = [unit(n, d) for d in range(n)]
    indices[node.args[1] % n] = index
    return form.at(indices, n)


def plain_index(values: IndexValues, index: Any, node: Node) -> int | None:
    """The dimension of the result whose index an index tensor of `node` simply is; None for any other index."""
    form = _valid_index(values, index, node)
    if form is None or form.const != 0 or [s for s in form.steps if s != 0] != [1]:
        return None
    return form.steps.index(1)


def _valid_index(values: IndexValues, index: Any, node: Node) -> Affine | None:
    """An index tensor that is nowhere negative, so that it does not count from the end."""
    form = values.affine(index) if isinstance(index, Node) and _is_integer(index) else None
    if form is None or form.bounds(shape(index), values.ranges)[0] < 0:
        return None
    return form.padded(rank(node))


_RULES: dict[str, Callable[[IndexValues, Node], Form | None]] = {
    "arange": _arange, "full": _filled(1), "full_like": _filled(1), "new_full": _filled(2), "scalar_tensor": _filled(0),
    **{name: _constant(0) for name in ("zeros", "zeros_like", "new_zeros")},
    **{name: _constant(1) for name in ("ones", "ones_like", "new_ones")},
    **dict.fromkeys(VIEWS, _view), "repeat": _repeat, "_to_copy": _cast, "clone": _same_values,
    "add": _add(1), "sub": _add(-1), "rsub": _rsub, "mul": _mul, "neg": _negative,
    **{name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "bitwise_and": _logical(operator.and_), "logical_and": _logical(operator.and_),
    "bitwise_or": _logical(operator.or_), "logical_or": _logical(operator.or_),
    "bitwise_not": _not, "logical_not": _not, "where": _where, "masked_fill": _masked_fill,
    "tril": _triangle(1), "triu": _triangle(-1), "cumsum": _cumsum, "diff": _diff, "index": _index, "gather": _gather,
}  # fmt: skip
