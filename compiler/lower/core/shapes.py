"""From torch's symbolic sizes (sympy) to indices of the loop IR."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import sympy
import torch

from ....runtime.errors import CompileError
from ...ir.index import (
    Index,
    Size,
    as_index,
    maximum,
    minimum,
    of,
)
from ...model.computed import NO_BOUND, raw
from ...model.control import regions_of
from ...model.graph import ModelGraph
from .fraction_sizes import ROUNDED, Refused, rounded


def sizes_of(graph: ModelGraph) -> Sizes:
    """The size symbols of an entry point: those of its inputs, and those that its run finds."""
    known = {s.symbol: Size(s.name, s.min, s.max) for s in graph.symbols}
    computed = [c for part in (graph, *regions_of(graph)) for c in part.computed]
    found = {c.symbol: Size(c.name, c.min, None if c.max == NO_BOUND else c.max, found=True) for c in computed}
    return Sizes({**known, **found})


class Sizes:
    """The size symbols of one entry point, by their sympy symbol."""

    def __init__(self, symbols: Mapping[sympy.Symbol, Size]):
        self.symbols = dict(symbols)
        self._known: dict[sympy.Expr, Index] = {}

    def index(self, value: int | torch.SymInt | sympy.Expr | Index) -> Index:
        """The index of a size; CompileError for a size that is only known when the model runs."""
        if isinstance(value, Index):
            return value
        if isinstance(value, int):
            return as_index(value)
        expr = value.node.expr if isinstance(value, torch.SymInt) else value
        if not isinstance(expr, sympy.Basic):  # a number that the run finds, in the place of a size
            raise _unknown("of a number that the run finds")
        if expr not in self._known:
            self._known[expr] = self._convert(expr)
        return self._known[expr]

    def own(self, value: int | torch.SymInt) -> Size | None:
        """The symbol that a size is by itself, as it was traced; None when it is none or a formula."""
        return self.symbols.get(raw(value)) if isinstance(value, torch.SymInt) else None

    def shape(self, values: Sequence[int | torch.SymInt]) -> tuple[Index, ...]:
        """The formulas of torch's sizes, in order."""
        return tuple(self.index(v) for v in values)

    def _convert(self, e: sympy.Expr) -> Index:
        if isinstance(e, (int, sympy.Integer)):
            return as_index(int(e))
        if isinstance(e, sympy.Symbol):
            if e not in self.symbols:
                raise _unknown(str(e))
            return of(self.symbols[e])
        if type(e).__name__ in ROUNDED:
            return self._rounded(e)
        args = [self._convert(a) for a in e.args] if not isinstance(e, sympy.Pow) else []
        match type(e).__name__:
            case "Add":
                return sum(args[1:], start=args[0])
            case "Mul":
                total = args[0]
                for a in args[1:]:
                    total = total * a
                return total
            case "Pow" if isinstance(e.args[1], sympy.Integer) and int(e.args[1]) > 0:
                base, total = self._convert(e.args[0]), as_index(1)
                for _ in range(int(e.args[1])):
                    total = total * base
                return total
            case "FloorDiv" | "CleanDiv" | "IntTrueDiv":
                return args[0] // args[1]
            case "Mod" | "PythonMod":
                return args[0] % args[1]
            case "Max":
                return functools.reduce(maximum, args)
            case "Min":
                return functools.reduce(minimum, args)
        raise CompileError(f"the size formula {self._named(e)} is not supported")

    def _rounded(self, e: sympy.Expr) -> Index:
        try:
            return rounded(e, self.index)
        except Refused as refused:
            raise CompileError(
                f"the size {self._named(e)} has no formula of whole numbers: {refused}",
                hint="Compute it with whole numbers (n * 7 // 10), or give the dynamic size a smaller range.",
            ) from None

    def _named(self, e: sympy.Expr) -> sympy.Expr:
        """A formula with the names of the sizes in it."""
        return e.xreplace({symbol: sympy.Symbol(size.name) for symbol, size in self.symbols.items()})


def _unknown(size: str) -> CompileError:
    return CompileError(
        f"the size {size} depends on the data: it is not known before the model runs",
        hint="In a branch or the body of a loop, use sizes from outside: n = x.item() in front of torch.cond or scan.",
    )
