"""What the model asks of values while it runs: of tensors and of the numbers that it reads from them.

    torch._assert_async((x > 0).all(), "text")       ->   assert_true(all, "text (model.py:12)")
    torch._check(v < 3), v = x.sum().item()          ->   assert_true(scalar_tensor(v < 3), "model.py:12 ...")
    torch._check(k <= n), both sizes of the run      ->   SizeCheck: the host knows them, and compares

Every assertion becomes mycc::assert_true where it stands; those that the host decides are taken out again when it is
known which sizes the run finds. What is said of the inputs' sizes alone torch.export has settled.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.symbol import SymT, symbol_is_type

from .computed import KEPT, ComputedSize, SizeCheck, is_definer, raw, relations, scalar_tensor
from .operators import own  # noqa: F401  # defines mycc::assert_true
from .source_lines import origin, place_of

__all__ = ["ASSERTIONS", "Assertion", "AssertionRefused", "asked_sizes", "assertions_of", "settle"]

aten = torch.ops.aten
#: in the meta of a number's node: its value is asserted, so that it is read from memory, whatever torch takes it for
ASSERTED = "mycc_asserted"
_OF_TENSORS = (
    aten._assert_async.msg,
    aten._assert_async.default,
    aten._functional_assert_async.msg,
)
_OF_NUMBERS = (aten._assert_scalar.default, aten._functional_assert_scalar.default, torch._check)
_OF_RANGES = (aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default)
#: of shapes and dtypes, which the capture has seen
_SETTLED = (aten._assert_tensor_metadata.default, aten._make_dep_token.default)
ASSERTIONS = frozenset({*_OF_TENSORS, *_OF_NUMBERS, *_OF_RANGES, *_SETTLED})
_EXPRESSION = re.compile(r"Runtime assertion failed for expression (.+) on node")
_NUMBER = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
_UNKNOWN = sympy.Symbol("unknown")  # of a number whose symbol torch has replaced by what it has to be


class AssertionRefused(Exception):
    """An assertion that cannot be kept."""


@dataclass(frozen=True)
class Assertion:
    """condition: what has to hold, a node or a value that torch knows. place: of the assertion. kept: the
    mycc::assert_true node that tests it; None of a constant that holds."""

    condition: Any
    place: fx.Node
    kept: fx.Node | None


def assertions_of(graph: fx.Graph, node: fx.Node, args: Sequence[Any], of_inputs: bool = False) -> list[Assertion]:
    """The assertions that a node makes, kept where `graph` inserts; args: its arguments there. of_inputs: also those of
    the sizes of inputs alone, which torch.export has settled for what the model asks itself.

    Raises:
        AssertionRefused: of a tensor that has not one element.
    """
    if node.target in _SETTLED:
        return []
    if node.target in _OF_TENSORS:
        message = str(args[1]) if len(args) > 1 else ""
        return [Assertion(None, node, _keep(graph, node, _truth(graph, node, args[0]), _of_model(node, message)))]
    conditions = _bounds(graph, node, args[0]) if node.target in _OF_RANGES else [args[0]]
    return [_of_number(graph, node, condition, of_inputs) for condition in conditions]


def _of_number(graph: fx.Graph, node: fx.Node, condition: Any, of_inputs: bool) -> Assertion:
    if not isinstance(condition, fx.Node) or _of_memory(condition) or not (of_inputs or _data(condition)):
        return Assertion(condition, node, None)
    flag = scalar_tensor(graph, condition, torch.bool)
    where = place_of(node) or next((p for n in _ancestors(condition) if (p := place_of(n))), "")
    asked = _EXPRESSION.search(str(node.args[1])) if len(node.args) > 1 else None
    text = f"{asked[1] if asked else raw(condition.meta['val'])} does not hold"
    return Assertion(condition, node, _keep(graph, node, flag, f"{where}: {text}" if where else text))


def _bounds(graph: fx.Graph, node: fx.Node, number: Any) -> Iterator[fx.Node]:
    """min <= number, number <= max as nodes."""
    if not isinstance(number, fx.Node):
        return
    bounds: dict[str, Any] = dict(zip(("min", "max"), node.args[1:], strict=False)) | dict(node.kwargs)
    for name, compare in (("min", operator.ge), ("max", operator.le)):
        if bounds.get(name) is not None:
            new = graph.call_function(compare, (number, bounds[name]))
            new.meta = {**node.meta, "val": compare(number.meta["val"], bounds[name])}
            yield new


def _truth(graph: fx.Graph, node: fx.Node, condition: fx.Node) -> fx.Node:
    """The condition as a bool; every other type asks whether it is zero."""
    val = condition.meta["val"]
    if val.numel() != 1:
        shape = ", ".join(map(str, val.shape))
        raise AssertionRefused(
            f"an assertion of a tensor of shape [{shape}], of which it is not clear what has to hold"
        )
    if val.dtype == torch.bool:
        return condition
    new = graph.call_function(aten.ne.Scalar, (condition, 0))
    new.meta = {**node.meta, "val": torch.empty_like(val, dtype=torch.bool)}
    return new


def _of_model(node: fx.Node, message: str) -> str:
    """The model's message on one line, and where it says it."""
    text = " ".join("".join(c if c.isprintable() else " " for c in message).split()) or "an assertion does not hold"
    where = origin(node)
    return f"{text} ({where.where})" if where is not None and where.file else text


def _keep(graph: fx.Graph, node: fx.Node, condition: fx.Node, text: str) -> fx.Node:
    new = graph.call_function(torch.ops.mycc.assert_true.default, (condition, text))
    new.meta = {**node.meta, "val": None, KEPT: True}
    return new


# numbers -------------------------------------------------------------------------------------------------------------
def _ancestors(number: fx.Node) -> Iterator[fx.Node]:
    """A number's node and the numbers that it is computed from."""
    stack, seen = [number], {number}
    while stack:
        node = stack.pop()
        yield node
        if is_definer(node):
            continue
        for source in node.all_input_nodes:
            if source not in seen and isinstance(source.meta.get("val"), _NUMBER):
                seen.add(source)
                stack.append(source)


def _of_memory(condition: fx.Node) -> bool:
    """Whether it asks where a view starts in memory, which says nothing of values."""
    return any(n.target is aten.sym_storage_offset.default for n in _ancestors(condition))


def _data(number: fx.Node) -> set[sympy.Symbol]:
    """The symbols of what the run finds that a number is computed from; _UNKNOWN among them where torch has put a
    number in a symbol's place."""
    found: set[sympy.Symbol] = set()
    for node in _ancestors(number):
        symbols = {
            s for s in raw(node.meta["val"]).free_symbols if symbol_is_type(s, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))
        }
        found |= symbols or ({_UNKNOWN} if is_definer(node) else set())
    return found


def _by_host(condition: fx.Node, sizes: set[sympy.Symbol]) -> list[tuple[str, sympy.Expr, sympy.Expr]] | None:
    """The comparisons of sizes that a condition is; None of anything else, and of numbers that are no sizes."""
    found = relations(condition)
    data = _data(condition)
    if found is None or not data <= sizes:
        return None
    told = {s for _, a, b in found for s in a.free_symbols | b.free_symbols}
    return found if data <= told else None


def asked_sizes(assertions: Sequence[Assertion]) -> set[sympy.Symbol]:
    """What assertions say something of that is not plain."""
    asked: set[sympy.Symbol] = set()
    for a in assertions:
        for op, left, right in (relations(a.condition) or ()) if a.kept is not None else ():
            if (op, left) != ("le", sympy.S.Zero):
                asked |= left.free_symbols | right.free_symbols
    return asked


def settle(assertions: Sequence[Assertion], computed: Sequence[ComputedSize]) -> tuple[SizeCheck, ...]:
    """Decides who tests each assertion. What the host does is taken out of the graph, and given back as checks unless
    the range of a size already says it."""
    sizes = {c.symbol: (c.min, c.max) for c in computed}
    untrue = {bound for a in assertions[:1] for node in a.place.graph.nodes if (bound := _untrue_bound(node))}
    equal = {tuple(a.condition.args) for a in assertions if getattr(a.condition, "target", None) is operator.eq}
    checks: dict[SizeCheck, None] = {}
    for assertion in assertions:
        if assertion.kept is None or not isinstance(assertion.condition, fx.Node):
            continue
        by_host = _by_host(assertion.condition, set(sizes))
        if by_host is None and _bound_of(assertion.condition) in equal:
            assertion.kept.graph.erase_node(assertion.kept)
            continue
        if by_host is None:
            for node in _ancestors(assertion.condition):
                node.meta[ASSERTED] = True
            continue
        where = place_of(assertion.place) or place_of(assertion.condition)
        rows = (SizeCheck(op, a, b, where) for op, a, b in by_host)
        checks |= dict.fromkeys(c for c in rows if not _in_range(c, sizes) and (c.op, c.a, c.b) not in untrue)
        assertion.kept.graph.erase_node(assertion.kept)
    return tuple(checks)


def _bound_of(condition: fx.Node) -> tuple[Any, ...] | None:
    """(a, b) of a <= b and a >= b, which torch asks beside a == b."""
    return tuple(condition.args) if condition.target in (operator.le, operator.ge) else None


def _untrue_bound(node: fx.Node) -> tuple[str, sympy.Expr, sympy.Expr] | None:
    """What torch asks of the size of a masked_select, also where its operand is broadcast and has more elements."""
    if node.target is not aten.masked_select.default:
        return None
    operand: Any = node.args[0]
    return "le", raw(node.meta["val"].shape[0]), raw(operand.meta["val"].numel())


def _in_range(check: SizeCheck, sizes: dict[sympy.Symbol, tuple[int, int]]) -> bool:
    """Whether the range of a size, which every call tests, says the same."""
    if check.op == "ne":
        return False
    (a_min, a_max), (b_min, b_max) = (sizes.get(side, (side, side)) for side in (check.a, check.b))
    if not all(isinstance(x, int) or getattr(x, "is_number", False) for x in (a_min, a_max, b_min, b_max)):
        return False
    if check.op == "eq":
        return bool(a_min == a_max == b_min == b_max)
    return bool(a_max < b_min) if check.op == "lt" else bool(a_max <= b_min)
