"""Whether what torch.export assumed about sizes holds for all of them.

torch decides about memory layouts with the sizes at hand, and takes the answer for a condition on all sizes:

    cache[:, :n] = x      assumes n != 16 where the cache has 16 rows (else the slice were contiguous)
    x[:, : n // 2]        assumes n // 2 <= n, n // 2 != 1 and n // 2 != n
    torch.mm(y.t(), x)    may assume min(64 n, 192 n) = 64 n

Exported with `prefer_deferred_runtime_asserts_over_guards` such conditions are kept beside the graph. Here each is
evaluated over the range of its sizes. A size that an inequality of torch's own leaves out does no harm if the graph's
operators, run on fake tensors of that size, give the shapes that the graph says. What the model itself asks
(`if n != 16:`) has to hold.
"""

from __future__ import annotations

import itertools
import logging
import math
import operator
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.utils._sympy.functions import Max

from ..model.sizes import NO_MAX
from ..model.source_lines import is_torch_file
from .sizes_of_one import is_machinery
from .smallest import same_shapes, wrong_nodes

__all__ = ["Asked", "assumptions_hold", "body_holds", "holds_for_one"]

#: a size is tried with all its values up to so many, else with small, round and the largest ones
ALL = 4096
#: as many sets of sizes that a condition leaves out are tried with the graph
TRIED = 4
#: and so many of all conditions together
MOST = 24
_ADDED = re.compile(r"^\w+ (?P<condition>.+?) \[guard added\]")
_SYMBOL = re.compile(r"\b[su]\d+\b")
Range = tuple[int, int]


class Asked(logging.Handler):
    """Listens to torch's log for conditions on sizes that the model's own code asks, and not an operator of torch."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.conditions: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        match = _ADDED.match(record.getMessage())
        files = [
            f.filename for f in traceback.extract_stack() if f.filename != __file__ and not is_machinery(f.filename)
        ]
        if match and (not files or not is_torch_file(files[-1])):
            self.conditions[match["condition"]] = None


def assumptions_hold(program: ExportedProgram, asked: Asked) -> bool:
    """Whether the graph is right for all sizes of the ranges, whatever torch assumed when it was traced."""
    ranges = _ranges(program)
    found = _found(program.graph)
    if any(_exceptions(_renamed(condition, found), ranges) != ([], True) for condition in asked.conditions):
        return False
    left_out = []
    for condition in _deferred(program.graph):
        wrong, _ = _exceptions(_renamed(str(condition), found), ranges)
        if wrong and not isinstance(condition, sympy.Ne):
            return False
        left_out += wrong
    if left_out and len(ranges) < len(program.range_constraints):
        return False  # sizes that only the run finds
    sets = _placed(program, ranges, left_out)
    if len(sets) > MOST:
        return False
    nodes = _nodes(program)
    return not any(wrong_nodes(nodes, sizes) for sizes in sets)


def _nodes(program: ExportedProgram) -> list[fx.Node]:
    """The nodes of the graph, and of the bodies of its branches and loops."""
    graphs = (m.graph for m in program.graph_module.modules() if isinstance(m, fx.GraphModule))
    return [node for graph in graphs for node in graph.nodes]


def holds_for_one(program: ExportedProgram) -> bool:
    """Whether a graph that was traced as if no computed size were 1 is right where one is:

        x[n // 2 :].squeeze(0)    keeps its dimension, but for n = 2

    Sizes of the inputs that are 1 themselves are looked at later (smallest.py), and those that the run finds never.
    """
    ranges = {str(s): (max(low, 2), high) for s, (low, high) in _ranges(program).items()}
    if len(ranges) < len(program.range_constraints):
        return True
    nodes = _nodes(program)
    conditions = {f"Ne({size}, 1)" for size in _computed_sizes(nodes)}
    ones = [sizes for condition in sorted(conditions) for sizes in _exceptions(condition, ranges)[0] if sizes]
    points = _placed(program, ranges, ones)[:MOST]
    anyway = {n for point in _placed(program, ranges, [{}]) for n in wrong_nodes(nodes, point)} if points else set()
    return all(anyway.issuperset(wrong_nodes(nodes, point)) for point in points)


def _computed_sizes(nodes: Iterable[fx.Node]) -> set[sympy.Expr]:
    """The sizes of tensors that are neither numbers nor an input's own."""
    values = (node.meta.get("val") for node in nodes)
    sizes: Iterator[Any] = (n for v in values if isinstance(v, torch.Tensor) for n in v.shape)
    found = (n.node.expr for n in sizes if isinstance(n, torch.SymInt))
    return {e for e in found if not e.is_Symbol and not e.is_number}


def _ranges(program: ExportedProgram) -> dict[str, Range]:
    return {str(s): _bounds(r) for s, r in program.range_constraints.items() if not str(s).startswith("u")}


def _placed(
    program: ExportedProgram, ranges: Mapping[str, Range], found: Sequence[dict[str, int]]
) -> list[dict[sympy.Symbol, int]]:
    """The sets of sizes that were found, each once, beside sizes that differ from each other, and from what models
    treat in a way of its own."""
    symbols = {str(s): s for s in program.range_constraints}
    others = {s: min(max(low, 5 + 2 * i), high) for i, (s, (low, high)) in enumerate(ranges.items())}
    sets = [{symbols[name]: size for name, size in {**others, **sizes}.items()} for sizes in found]
    return [sizes for i, sizes in enumerate(sets) if sizes not in sets[:i]]


def body_holds(
    body: fx.Graph, result: Any, conditions: Sequence[sympy.Basic], ranges: Mapping[sympy.Symbol, Range]
) -> bool:
    """Whether the definition of an operator, traced under conditions on its sizes, is right for all of the ranges.

    Args:
        body: the definition; its values know their shapes.
        result: the operator's own value, or several, on fake tensors.
        conditions: what the trace asked about sizes.
    """
    bounds = {str(symbol): limits for symbol, limits in ranges.items()}
    left_out: list[dict[str, int]] = []
    for condition in conditions:
        wrong, _ = _exceptions(str(condition), bounds)
        if wrong and not _is_about_layout(condition):
            return False
        left_out += [sizes for sizes in wrong if sizes not in left_out]
    middle = {symbol: min(max(low, 5), high) for symbol, (low, high) in ranges.items()}
    given = next(iter(body.find_nodes(op="output"))).args[0]
    for sizes in left_out[:MOST]:
        point = {symbol: sizes.get(str(symbol), size) for symbol, size in middle.items()}
        if wrong_nodes(body.nodes, point) or not same_shapes(given, result, point):
            return False
    return len(left_out) <= MOST


def _is_about_layout(condition: sympy.Basic) -> bool:
    """What torch asks to tell strides: whether a size is not 1, not another, at least 2; strides hold max(1, size)."""
    if isinstance(condition, sympy.GreaterThan):
        return bool(condition.rhs == 2)
    return isinstance(condition, sympy.Ne) or any(sympy.Integer(1) in m.args for m in condition.atoms(Max))


def _shape_env(graph: fx.Graph) -> Any:
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor) and value.fake_mode.shape_env is not None:
            return value.fake_mode.shape_env
    return None


def _deferred(graph: fx.Graph) -> list[sympy.Basic]:
    """The conditions that stand beside the graph."""
    shape_env = _shape_env(graph)
    return [] if shape_env is None else [found.expr for found in shape_env.deferred_runtime_asserts.get(None, ())]


def _found(graph: fx.Graph) -> dict[str, str]:
    """Sizes that torch found to be others while it traced (two inputs of one length): name -> what it is."""
    shape_env = _shape_env(graph)
    return {} if shape_env is None else {str(s): str(shape_env.replace(s)) for s in shape_env.replacements}


def _renamed(condition: str, found: Mapping[str, str]) -> str:
    return _SYMBOL.sub(lambda match: f"({found[match[0]]})" if match[0] in found else match[0], condition)


def _exceptions(condition: str, ranges: Mapping[str, Range]) -> tuple[list[dict[str, int]], bool]:
    """The first sizes for which a condition does not hold, and whether all in the ranges were tried."""
    names = sorted(set(_SYMBOL.findall(condition)))
    if any(name not in ranges for name in names):
        return [{}], False
    points, every = _points([ranges[name] for name in names])
    code = compile(condition.strip(), "condition", "eval")
    if any(name not in _FUNCTIONS and name not in ranges for name in code.co_names):
        return [{}], False
    sets = (dict(zip(names, point, strict=True)) for point in points)
    return list(itertools.islice((s for s in sets if not eval(code, _FUNCTIONS, dict(s))), TRIED)), every


def _bounds(found: Any) -> Range:
    high = int(found.upper) if found.upper.is_Integer else NO_MAX
    return int(found.lower), min(high, NO_MAX)


def _points(ranges: Sequence[Range]) -> tuple[Iterator[tuple[int, ...]], bool]:
    """Values of some sizes together, and whether these are all."""
    count = 1
    for low, high in ranges:
        count *= high - low + 1
    if count <= ALL:
        return itertools.product(*(range(low, high + 1) for low, high in ranges)), True
    share = max(2, int(ALL ** (1 / len(ranges))) // 2)
    return itertools.product(*(_some(low, high, share) for low, high in ranges)), False


def _some(low: int, high: int, count: int) -> list[int]:
    small = range(low, min(high, low + count) + 1)
    powers = (2**k + d for k in range(32) for d in (-1, 0, 1))
    return sorted({*small, *(v for v in powers if low <= v <= high), high})


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Eq": operator.eq,
    "Ne": operator.ne,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": lambda a, b, c: a // b % c,
    "Max": max,
    "Min": min,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": float,
    "TruncToInt": int,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "floor": int.__floor__,
    "And": lambda *parts: all(parts),
    "Or": lambda *parts: any(parts),
    "Not": operator.not_,
}
