"""Sizes and numbers that depend on the values of tensors: found while the package runs.

i = nonzero(x)            u0 = size(i, 0): a size that the run finds, 0..numel(x)
k = n.item()              u1 = a number of a tensor; a size where the model says that it is one
torch._check(k <= 5)      u1 in 0..5: a range; relations between sizes become checks
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ...runtime.errors import CompileError
from .source_lines import place_of

__all__ = [
    "KEPT", "ComputedSize", "SizeCheck", "computed_inside", "computed_sizes", "free_symbols", "is_definer",
    "keep_definers", "raw", "relations", "scalar_tensor",
]  # fmt: skip

NO_BOUND = 2**63 - 1
KEPT = "mycc_kept"  # in a node's meta: it stays though nobody reads its result
_RELATIONS: dict[Any, str] = {operator.eq: "eq", operator.ne: "ne", operator.le: "le", operator.lt: "lt"}
_TURNED: dict[Any, str] = {operator.ge: "le", operator.gt: "lt"}
_COMPOSITE = (
    torch.ops.aten.item.default,
    torch.ops.aten.repeat_interleave.self_Tensor,
    torch.ops.aten.where.default,
    torch.ops.aten.nonzero_numpy.default,
)
#: operators of libraries whose results have as many rows as the values of their operands say
_OF_LIBRARIES = frozenset({"torchvision.nms.default"})
_MASKS = (torch.bool, torch.uint8)
_SYMPY: dict[type, str] = {
    sympy.Eq: "eq", sympy.Ne: "ne", sympy.Le: "le", sympy.Lt: "lt", sympy.Ge: "ge", sympy.Gt: "gt",
}  # fmt: skip


@dataclass(frozen=True)
class ComputedSize:
    """A size that the run finds, in the order of their definitions: bounds (both included) and the line that makes it.

    A number that may be negative is no size: `min` is 0 or more.
    """

    name: str
    symbol: sympy.Symbol
    min: int
    max: int
    where: str


@dataclass(frozen=True)
class SizeCheck:
    """a `op` b (eq, ne, le, lt) has to hold, says the model (torch._check) at `where`."""

    op: str
    a: sympy.Expr
    b: sympy.Expr
    where: str

    def __str__(self) -> str:
        sign = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<"}[self.op]
        return f"{self.a} {sign} {self.b}"

    def named(self, names: Mapping[sympy.Symbol, sympy.Symbol]) -> SizeCheck:
        """With other names of sizes."""
        return replace(self, a=self.a.xreplace(names), b=self.b.xreplace(names))


def raw(value: object) -> sympy.Expr:
    """The formula of a size or number as it was traced, before torch put what it learned later in the place of what the
    run finds. Sizes of inputs that torch has found equal have one name."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return sympy.sympify(value)
    traced, shape_env = value.node._expr, value.node.shape_env
    if shape_env is None:
        return traced
    traced = traced.xreplace(shape_env.unbacked_renamings)  # of a second trace of the same program
    sizes = {s for s in traced.free_symbols if symbol_is_type(s, SymT.SIZE)}
    return traced.xreplace({s: shape_env.replace(s) for s in sizes})


def free_symbols(value: object) -> set[sympy.Symbol]:
    """The symbols of a node's value: of a number, of a tensor's sizes, of all in a tuple."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return set(value.node.expr.free_symbols)
    if isinstance(value, torch.Tensor):
        return {s for size in value.shape for s in free_symbols(size)}
    if isinstance(value, (tuple, list)):
        return {s for part in value for s in free_symbols(part)}
    return set()


def _own_symbols(value: object) -> Iterator[sympy.Symbol]:
    """Symbols that stand alone as a size or number of a value."""
    return (symbol for _, symbol in _own_numbers(value))


def _own_numbers(value: object) -> Iterator[tuple[Any, sympy.Symbol]]:
    """The same, each with the size or number that it is."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _own_numbers(part)
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    for size in sizes:
        if isinstance(size, (torch.SymInt, torch.SymFloat)) and isinstance(raw(size), sympy.Symbol):
            yield size, raw(size)
        if isinstance(size, torch.SymBool) and isinstance(raw(size), sympy.Eq):  # item() of a bool
            yield from ((size, symbol) for symbol in raw(size).free_symbols)


def is_definer(node: fx.Node) -> bool:
    """Whether the values of tensors decide about a size or a number that an operator gives."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target is torch.ops.aten.index.Tensor:
        return any(isinstance(i, fx.Node) and i.meta["val"].dtype in _MASKS for i in node.args[1])  # type: ignore[union-attr]
    dynamic = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(target.tags)
    return bool(dynamic) or target in _COMPOSITE or str(target) in _OF_LIBRARIES


def computed_sizes(
    nodes: Sequence[fx.Node], known: set[sympy.Symbol], ranges: Mapping[Any, Any]
) -> tuple[ComputedSize, ...]:
    """The sizes that the graph finds, in order. ranges: torch.export's range constraints.

    Raises CompileError for a size that no operator of the graph defines.
    """
    found, bad = _defined(nodes, known, ranges)
    if bad:
        raise CompileError(
            "the size of a tensor depends on the values of another in a way that cannot be followed", details=bad
        )
    return found


def computed_inside(
    nodes: Sequence[fx.Node], known: set[sympy.Symbol], ranges: Mapping[Any, Any]
) -> tuple[ComputedSize, ...]:
    """The sizes that a body of a branch or loop finds; torch's range constraints may leave those out."""
    own = {
        symbol: value.node.shape_env.var_to_range[symbol]
        for node in nodes if is_definer(node)
        for value, symbol in _own_numbers(node.meta.get("val"))
        if value.node.shape_env is not None and symbol in value.node.shape_env.var_to_range
    }  # fmt: skip
    return _defined(nodes, known, {**own, **ranges})[0]


def _defined(
    nodes: Sequence[fx.Node], known: set[sympy.Symbol], ranges: Mapping[Any, Any]
) -> tuple[tuple[ComputedSize, ...], list[str]]:
    """The sizes that nodes define, in order, and the lines of those that have a size from nowhere."""
    found: dict[sympy.Symbol, ComputedSize] = {}
    numbers: set[sympy.Symbol] = set()
    bad: dict[str, None] = {}
    for node in nodes:
        value = node.meta.get("val")
        for symbol in _own_symbols(value) if is_definer(node) else ():
            if symbol in known or symbol in found or symbol in numbers:
                continue
            low, high = _bounds(ranges.get(symbol))
            if _equal_to_others(value, symbol):  # a check says so; torch's range is that of the others
                low, high = 0, NO_BOUND
            if node.target is torch.ops.aten.masked_select.default:  # torch's bound is wrong where it broadcasts
                high = NO_BOUND
            if low < 0 or not symbol.is_integer or isinstance(value, torch.SymBool):
                numbers.add(symbol)
                continue
            found[symbol] = ComputedSize(str(symbol), symbol, low, high, place_of(node) or node.name)
        if isinstance(value, torch.Tensor) and (fractions := {s for s in free_symbols(value) if not s.is_integer}):
            raise CompileError(
                f"a size is made of a float that the run finds ({', '.join(map(str, fractions))})",
                details=[place_of(node) or node.name],
                hint="Make an integer of it while it is a tensor: int(n) is n.to(torch.int64).item().",
            )
        if free_symbols(value) - known - found.keys() - numbers:
            bad.setdefault(place_of(node) or node.name)
    return tuple(found.values()), list(bad)


def _equal_to_others(value: object, symbol: sympy.Symbol) -> bool:
    """Whether torch has put a formula of other sizes in the place of a symbol."""
    sizes: Sequence[Any] = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(s, torch.SymInt) and raw(s) == symbol and s.node.expr.free_symbols - {symbol} for s in sizes)


def _bounds(found: Any) -> tuple[int, int]:
    if found is None:
        return -NO_BOUND, NO_BOUND

    def finite(bound: Any, default: int) -> int:
        return int(bound) if getattr(bound, "is_Integer", False) or isinstance(bound, int) else default

    return finite(found.lower, -NO_BOUND), finite(found.upper, NO_BOUND)


def keep_definers(graph: fx.Graph, asked: Collection[sympy.Symbol]) -> None:
    """Marks what has to stay even if nobody reads its result: items, whose range is checked, and what checks ask."""
    asked = set(asked)
    for node in graph.nodes:
        if is_definer(node):
            own = set(_own_symbols(node.meta.get("val")))
            if own & asked or (own and not isinstance(node.meta["val"], (torch.Tensor, tuple, list))):
                node.meta[KEPT] = True


def scalar_tensor(graph: fx.Graph, number: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A tensor of one element of a number that the graph computes; at the graph's end."""
    mode = next(v.fake_mode for n in graph.nodes if isinstance(v := n.meta.get("val"), torch._subclasses.FakeTensor))
    node = graph.call_function(torch.ops.aten.scalar_tensor.default, (number,), {"dtype": dtype})
    node.meta = {key: number.meta[key] for key in ("stack_trace", "nn_module_stack") if key in number.meta}
    with mode:
        node.meta["val"] = torch.empty((), dtype=dtype)
    return node


def relations(condition: Any) -> list[tuple[str, sympy.Expr, sympy.Expr]] | None:
    """The comparisons (op of SizeCheck, a, b) that all have to hold; None where the condition is something else."""
    if not isinstance(condition, fx.Node):
        return None
    target, args = condition.target, condition.args
    if target is operator.and_:
        parts = [relations(part) for part in args]
        return [row for part in parts for row in part or ()] if all(part is not None for part in parts) else None
    if target in _RELATIONS or target in _TURNED:
        a, b = (raw(x.meta["val"]) if isinstance(x, fx.Node) else sympy.sympify(x) for x in args)
        return [(_RELATIONS[target], a, b) if target in _RELATIONS else (_TURNED[target], b, a)]
    if not isinstance(condition.meta.get("val"), torch.SymBool):
        return None
    relation = raw(condition.meta["val"])
    op = _SYMPY.get(type(relation))
    if op in ("ge", "gt"):
        return [("le" if op == "ge" else "lt", relation.rhs, relation.lhs)]
    return None if op is None else [(op, relation.lhs, relation.rhs)]
