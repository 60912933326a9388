"""Size formulas of the manifest: integers, symbol names, + - * // and parentheses, e.g. "2*batch*(seq + 1)".

Those of kernels (operations and bytes) may also hold %, min(a, b) and max(a, b).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .errors import LoadError

__all__ = ["evaluate", "evaluate_shape"]

_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|//|[-+*%(),])")
_FUNCTIONS = {"min": min, "max": max}


def evaluate(formula: int | str, symbols: Mapping[str, int]) -> int:
    """The value of a formula.

    Raises:
        LoadError: it is not a formula, or names a symbol that has no value: the manifest is damaged.
    """
    if isinstance(formula, int):
        return formula
    try:
        return _value(formula, symbols)
    except ValueError as error:
        raise LoadError(f"a formula of the package's manifest is damaged: {error}") from None
    except RecursionError:
        raise LoadError("a formula of the package's manifest is nested too deeply") from None


def _value(formula: str, symbols: Mapping[str, int]) -> int:
    tokens, position = [], 0
    text = formula.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{formula!r} is not a size formula")
        tokens.append(match.group(1))
        position = match.end()
    tokens.reverse()
    value = _sum(tokens, symbols, formula)
    if tokens:
        raise ValueError(f"{formula!r} is not a size formula")
    return value


def evaluate_shape(shape: Sequence[int | str], symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of a shape whose dimensions are formulas."""
    return tuple(evaluate(dimension, symbols) for dimension in shape)


def _sum(tokens: list[str], symbols: Mapping[str, int], formula: str) -> int:
    value = _product(tokens, symbols, formula)
    while tokens and tokens[-1] in ("+", "-"):
        sign = 1 if tokens.pop() == "+" else -1
        value += sign * _product(tokens, symbols, formula)
    return value


def _product(tokens: list[str], symbols: Mapping[str, int], formula: str) -> int:
    value = _atom(tokens, symbols, formula)
    while tokens and tokens[-1] in ("*", "//", "%"):
        operator, operand = tokens.pop(), _atom(tokens, symbols, formula)
        if operator != "*" and operand == 0:
            raise ValueError(f"{formula!r} divides by zero")
        value = value * operand if operator == "*" else value // operand if operator == "//" else value % operand
    return value


def _atom(tokens: list[str], symbols: Mapping[str, int], formula: str) -> int:
    token = tokens.pop() if tokens else ""
    if token == "-":
        return -_atom(tokens, symbols, formula)
    if token == "(":
        value = _sum(tokens, symbols, formula)
        _expect(")", tokens, formula)
        return value
    if token in _FUNCTIONS and tokens and tokens[-1] == "(":
        _expect("(", tokens, formula)
        first = _sum(tokens, symbols, formula)
        _expect(",", tokens, formula)
        second = _sum(tokens, symbols, formula)
        _expect(")", tokens, formula)
        return _FUNCTIONS[token](first, second)
    if token.isdigit():
        return int(token)
    if token in symbols:
        return symbols[token]
    raise ValueError(f"{formula!r} is not a size formula over {', '.join(symbols) or 'no symbols'}")


def _expect(token: str, tokens: list[str], formula: str) -> None:
    if not tokens or tokens.pop() != token:
        raise ValueError(f"a parenthesis of {formula!r} is not closed")
