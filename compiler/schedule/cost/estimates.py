"""Estimates that decide between computing again and storing: work of an expression, sizes as numbers."""

from __future__ import annotations

from ...ir.expr import Call, Expr, Load
from ...ir.index import Index, Size
from ...ir.special_ops import SPECIAL_FUNCTIONS

#: cost of one evaluation in additions; operators that are not listed cost 1
OPERATOR_COST = {
    "fma": 2,
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal", "floor_div", "remainder", "fmod"), 4),
    **dict.fromkeys(("exp", "exp_weight", "exp2", "log", "log2", "log10", "tanh", "sigmoid", "silu", "sin", "cos"), 12),
    **dict.fromkeys(("erf", "erfc", "gelu_erf", "gelu_tanh", "pow", "tan", "expm1", "log1p"), 16),
    **dict.fromkeys(("asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma"), 24),
    **{name: 100 for name, *_ in SPECIAL_FUNCTIONS},
    **dict.fromkeys(("random_word", "random_unit", "random_normal", "random_normal_wide"), 100),
}
#: cost from which an operator is a function of many steps
FUNCTION = 12
#: cost of a load
LOAD = 2
#: an expression is worth storing rather than computing again above this
CHEAP = 6


def work(*expressions: Expr) -> int:
    """Additions per evaluation of all; each distinct subexpression once, loads among them."""
    total = 0
    for x in dict.fromkeys(x for e in expressions for x in e.walk()):
        if isinstance(x, Call):
            total += 0 if x.op == "cast" else OPERATOR_COST.get(x.op, 1)
        elif isinstance(x, Load):
            total += LOAD
    return total


def is_long(e: Expr) -> bool:
    """Whether one of its operators is a function: what takes the time, not memory."""
    return any(isinstance(x, Call) and OPERATOR_COST.get(x.op, 1) >= FUNCTION for x in e.walk())


def number(size: Index) -> int:
    """A size as a typical number: symbols stand for 64, within their range."""
    values = {a.name: _typical(a) for a in size.atoms() if isinstance(a, Size)}
    return size.evaluate(values)


def _typical(size: Size) -> int:
    value = max(64, size.lo)
    return value if size.hi is None else min(value, size.hi)
