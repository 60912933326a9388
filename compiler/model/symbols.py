"""The dynamic sizes of an exported program: their names, bounds, and the input dimension that defines each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from ...runtime.errors import CompileError
from .graph import SizeSymbol
from .leaves import Dims
from .sizes import NO_MAX, DimTerm, dim_term

__all__ = ["linear", "size_of", "size_symbols"]


def size_of(size: int | torch.SymInt) -> int | sympy.Expr:
    """A dimension of a fake tensor as an int or a sympy expression."""
    if isinstance(size, torch.SymInt):
        expr = size.node.expr
        return int(expr) if expr.is_number else expr
    return int(size)


def linear(expr: sympy.Expr) -> tuple[sympy.Symbol, int, int] | None:
    """(symbol, scale, offset) of an expression scale * symbol + offset with whole numbers and scale > 0, else None."""
    if isinstance(expr, sympy.Symbol):
        return expr, 1, 0
    if len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    at0, at1, at2 = (expr.subs(symbol, value) for value in (0, 1, 2))
    scale = at1 - at0
    if not (at0.is_Integer and scale.is_Integer and scale > 0 and at2 - at1 == scale and expr.is_polynomial(symbol)):
        return None
    return symbol, int(scale), int(at0)


def size_symbols(
    shapes: Sequence[Sequence[int | sympy.Expr]], names: Sequence[str], dims: Sequence[Dims], ranges: Mapping[Any, Any]
) -> tuple[SizeSymbol, ...]:
    """The size symbols of the inputs.

    Args:
        shapes, names: of the tensor inputs.
        dims: what the user said about each input's dimensions (torch.export Dims), {} where nothing.
        ranges: torch.export's range constraints, sympy expression -> range with lower and upper.
    """
    uses: dict[sympy.Symbol, list[tuple[int, int, int, int]]] = {}
    free: dict[sympy.Symbol, str] = {}
    for i, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                continue
            free |= {s: f"dimension {axis} of input '{names[i]}' ({size})" for s in size.free_symbols if s not in free}
            if found := linear(size):
                symbol, scale, offset = found
                uses.setdefault(symbol, []).append((scale, i, axis, offset))
    for symbol, where in free.items():
        if symbol not in uses:
            raise CompileError(f"the size {where} does not say what its symbol is; give it a dimension of its own")
    result: list[SizeSymbol] = []
    taken: set[str] = set()
    for symbol, places in uses.items():
        scale, i, axis, offset = min(places, key=lambda place: place[0] != 1 or place[3] != 0)
        term = _term(places, dims)
        name = _name(term, places, taken)
        low, high = _bounds(ranges.get(symbol), term)
        if term is not None and term.named and term.max < NO_MAX and (low, high) != (max(term.min, 1), term.max):
            raise CompileError(
                f"the size '{term.root}' is declared to be {term.min} to {term.max}, but the model works for "
                f"{low} to {high} only (torch.export finds this out while it traces the model)",
                hint=f"Declare torch.export.Dim('{term.root}', min={low}, max={high}), or mend what fixes the size.",
            )
        taken.add(name)
        result.append(SizeSymbol(name, symbol, low, high, i, axis, scale, offset))
    return tuple(result)


def _term(places: Sequence[tuple[int, int, int, int]], dims: Sequence[Dims]) -> DimTerm | None:
    """What the user said about a symbol: at a place where their formula is torch's, if any."""
    hint = None
    for scale, i, axis, offset in places:
        dim = dims[i].get(axis) if i < len(dims) else None
        if dim is None:
            continue
        term = dim_term(dim, 0, axis)
        if term.named and (term.scale, term.offset) == (scale, offset):
            return term
        hint = hint or (term if not term.named else None)
    return hint


def _name(term: DimTerm | None, places: Sequence[tuple[int, int, int, int]], taken: set[str]) -> str:
    if term is not None and term.named and term.root not in taken:
        return term.root
    n = 0
    while f"s{n}" in taken:
        n += 1
    return f"s{n}"


def _bounds(found: Any, term: DimTerm | None) -> tuple[int, int]:
    """Bounds of a symbol, at least 1. torch.export's own lower bound 2 only says that it does not trace 0 and 1."""
    low, high = (_finite(found.lower, 0), _finite(found.upper, NO_MAX)) if found is not None else (0, NO_MAX)
    low = 1 if low <= 2 else low
    if term is not None:
        low, high = max(low, term.min), min(high, term.max)
    return max(low, 1), min(high, NO_MAX)


def _finite(bound: Any, default: int) -> int:
    return int(bound) if getattr(bound, "is_Integer", False) or isinstance(bound, int) else default
