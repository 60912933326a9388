"""Whether the graph also holds for size 1.

torch.export traces every dynamic size as at least 2, so `x[:, 1]` raises no objection although it is out of bounds when
that dimension is 1. Here every operator is run once more on fake tensors of the smallest sizes, and the shapes compared
with what the graph says. Equal operators on equal shapes are run once: a transformer has few different ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from ...runtime.errors import CompileError
from ..model.computed import is_definer
from ..model.control import regions_of
from ..model.graph import ModelGraph, SizeSymbol
from ..model.source_lines import place_of

__all__ = ["check_smallest", "wrong_nodes"]

Sizes = Mapping[sympy.Symbol, int]


class _NotKnown(Exception):
    """A size that only the run finds, in the body of a branch or loop."""


def check_smallest(graph: ModelGraph, asked: set[str], not_for_one: Mapping[str, str]) -> None:
    """Raises the lower bound of a symbol to 2 where the graph is wrong for 1; a CompileError when 1 was asked for.

    not_for_one: the symbols that the model itself treats in another way there, each with the line that asks.
    """
    for symbol in graph.symbols:
        if symbol.min == 1 and str(symbol.symbol) in not_for_one and symbol.name in asked:
            raise _wrong_for_one(symbol, not_for_one[str(symbol.symbol)])
    graph.symbols = tuple(_from_two(s) if str(s.symbol) in not_for_one else s for s in graph.symbols)
    ones = [s for s in graph.symbols if s.min == 1]
    smallest = {s.symbol: s.min for s in graph.symbols}
    nodes = [n for whole in (graph, *regions_of(graph)) for n in whole.module.graph.nodes]

    def wrong_at(sizes: Sizes) -> list[fx.Node]:
        return wrong_nodes(nodes, {**_computed(graph, sizes), **sizes})

    wrong = wrong_at(smallest) if ones else []
    if not wrong:
        return
    # not for its size: sizes that the run finds stand in a relation that our numbers do not have
    anyway = set(wrong_at({symbol: max(size, 2) for symbol, size in smallest.items()}))
    if anyway.issuperset(wrong):
        return
    raised = []
    for symbol in ones:
        others = {s.symbol: max(s.min, 2) for s in graph.symbols if s is not symbol}
        wrong = [n for n in wrong_at({**others, symbol.symbol: 1}) if n not in anyway]
        if not wrong and len(ones) > 1:
            continue
        if symbol.name in asked:
            raise _wrong_for_one(symbol, place_of(wrong[0]) if wrong else "")
        raised.append(symbol)
    graph.symbols = tuple(_from_two(s) if s in raised or not raised else s for s in graph.symbols)


def _wrong_for_one(symbol: SizeSymbol, where: str) -> CompileError:
    return CompileError(
        f"the model does not work for {symbol.name} = 1, which its range includes",
        details=[where] if where else [],
        hint=f"Let the range of {symbol.name} start at 2.",
    )


def _computed(graph: ModelGraph, sizes: Sizes) -> dict[sympy.Symbol, int]:
    """Small values of the sizes that the run finds: 2, or what the model says that they are at most."""
    found = {c.symbol: min(max(c.min, 2), c.max) for c in graph.computed}
    for check in graph.checks:
        if check.op == "le" and check.a in found and check.b.free_symbols <= sizes.keys():
            found[check.a] = min(found[check.a], int(check.b.xreplace(dict(sizes))))
    return found


def _from_two(symbol: SizeSymbol) -> SizeSymbol:
    return dataclasses.replace(symbol, min=max(symbol.min, 2))


def wrong_nodes(nodes: Iterable[fx.Node], sizes: Sizes) -> list[fx.Node]:
    """The nodes whose operators, on the shapes that their arguments have for these sizes, fail or give others."""
    known: dict[str, bool] = {}
    found = []
    with FakeTensorMode(allow_non_fake_inputs=True):
        for node in nodes:
            if not isinstance(node.target, OpOverload) or not _has_tensor(node) or is_definer(node):
                continue
            try:
                expected = _shapes(node.meta.get("val"), sizes)
                args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: _concrete(n.meta.get("val"), sizes))
            except ZeroDivisionError:  # a quotient of sizes that has no value here
                found.append(node)
                continue
            except _NotKnown:
                continue
            key = f"{node.target} {args} {kwargs} {expected}"
            if key not in known:
                known[key] = _agrees(node.target, args, kwargs, expected)
            if not known[key]:
                found.append(node)
    return found


def same_shapes(results: Any, expected: Any, sizes: Sizes) -> bool:
    """Whether the results of a body have the shapes of the values that they stand for, some in two parts, for these
    sizes."""
    found = fx.map_arg(results, lambda n: n.meta["val"])
    return {_shapes(t, sizes) for t in _tensors(found)} == {_shapes(t, sizes) for t in _tensors(expected)}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _tensors(v)]
    return [value] if isinstance(value, torch.Tensor) else []


def _has_tensor(node: fx.Node) -> bool:
    return any(isinstance(n.meta.get("val"), torch.Tensor) for n in node.all_input_nodes)


def _agrees(op: OpOverload, args: Any, kwargs: Any, expected: Any) -> bool:
    if op is torch.ops.aten.select.int and not _selects(*args):
        return False
    try:
        result = op(*_build(args), **_build(kwargs))
    except (RuntimeError, IndexError, ValueError):
        return False
    return _shapes(result, {}) == expected


def _selects(x: _Shape, dim: int, index: int) -> bool:
    """Whether there is such a row, which fake tensors do not ask in every version of torch."""
    return -x.sizes[dim] <= index < x.sizes[dim]


@dataclasses.dataclass(frozen=True)
class _Shape:
    """A tensor argument as its dtype and sizes."""

    dtype: torch.dtype
    sizes: tuple[int, ...]


def _build(value: Any) -> Any:
    if isinstance(value, _Shape):
        return torch.empty(value.sizes, dtype=value.dtype)
    if isinstance(value, (tuple, list)):
        return type(value)(_build(v) for v in value)
    if isinstance(value, dict):
        return {k: _build(v) for k, v in value.items()}
    return value


def _concrete(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, torch.Tensor):
        return _Shape(value.dtype, _shapes(value, sizes))
    if isinstance(value, (tuple, list)):
        return tuple(_concrete(v, sizes) for v in value)
    if isinstance(value, torch.SymInt):
        return _number(value, sizes) if value.node.expr.free_symbols <= sizes.keys() else 1
    if isinstance(value, (torch.SymFloat, torch.SymBool)):  # a number of a tensor: any will do
        return 1.0 if isinstance(value, torch.SymFloat) else True
    return value


def _shapes(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(_number(size, sizes) for size in value.shape)
    if isinstance(value, (tuple, list)):
        return tuple(_shapes(v, sizes) for v in value)
    return None


def _number(size: Any, sizes: Sizes) -> int:
    if not isinstance(size, torch.SymInt):
        return int(size)
    expr = size.node.expr
    found = sizes[expr] if expr in sizes else expr.xreplace(sizes)
    if isinstance(found, sympy.Expr) and found.free_symbols:
        raise _NotKnown
    return int(found)
