"""Sizes of tensors in the graph: ints, or sympy formulas over the size symbols; equality and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sympy
import torch

from ..model.graph import SizeSymbol

Size: TypeAlias = "int | torch.SymInt | sympy.Expr"


@dataclass(frozen=True)
class SymbolRange:
    """Bounds of a size symbol, both included; inputs[input].shape[dim] = scale*symbol + offset."""

    min: int
    max: int
    input: int
    dim: int
    scale: int = 1
    offset: int = 0


def ranges_of(symbols: Sequence[SizeSymbol]) -> dict[sympy.Symbol, SymbolRange]:
    """The bounds of a graph's symbols, by symbol."""
    return {s.symbol: SymbolRange(s.min, s.max, s.input, s.dim, s.scale, s.offset) for s in symbols}


def expr(size: Size) -> int | sympy.Expr:
    """A size as an int or a sympy formula."""
    if isinstance(size, torch.SymInt):
        size = size.node.expr
    if isinstance(size, sympy.Expr):
        return int(size) if size.is_Integer else size
    return int(size)


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal whatever the symbols' values, as far as their formulas show."""
    return bool(expr(a) == expr(b))


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes are equal for every value of the dynamic sizes."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def bounds(formula: int | sympy.Expr, ranges: Mapping[sympy.Symbol, SymbolRange]) -> tuple[float, float]:
    """Lower and upper bound of a polynomial in the size symbols, term by term; infinite when it is none."""
    if isinstance(formula, int):
        return formula, formula
    low = high = 0.0
    for monomial, coefficient in sympy.expand(formula).as_coefficients_dict().items():
        smallest, largest = _monomial(monomial, ranges)
        c = float(coefficient)
        low += c * (smallest if c > 0 else largest)
        high += c * (largest if c > 0 else smallest)
    return (-math.inf, math.inf) if math.isnan(low + high) else (low, high)


def _monomial(monomial: sympy.Expr, ranges: Mapping[sympy.Symbol, SymbolRange]) -> tuple[float, float]:
    """Bounds of a product of powers of non-negative symbols."""
    low = high = 1.0
    for base, power in monomial.as_powers_dict().items():
        if base == 1:
            continue
        if base not in ranges or not power.is_Integer or power < 0:
            return -math.inf, math.inf
        low *= float(max(ranges[base].min, 0)) ** int(power)
        high *= float(ranges[base].max) ** int(power)
    return low, high
