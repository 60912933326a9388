"""Estimates that decide between computing again and storing: work of an expression, sizes as numbers."""

from __future__ import annotations

from ...ir.expr import Call, Expr, Load
from ...ir.index import Index, Size
from ...machine.cpu_loops import OPERATOR_COST, WORK


def work(*expressions: Expr) -> int:
    """Additions per evaluation of all; each distinct subexpression once, loads among them."""
    total = 0
    for x in dict.fromkeys(x for e in expressions for x in e.walk()):
        if isinstance(x, Call):
            total += 0 if x.op == "cast" else OPERATOR_COST.get(x.op, 1)
        elif isinstance(x, Load):
            total += WORK.load
    return total


def is_long(e: Expr) -> bool:
    """Whether one of its operators is a function: what takes the time, not memory."""
    return any(isinstance(x, Call) and OPERATOR_COST.get(x.op, 1) >= WORK.function for x in e.walk())


def number(size: Index) -> int:
    """A size as a typical number: symbols stand for 64, within their range."""
    values = {a.name: _typical(a) for a in size.atoms() if isinstance(a, Size)}
    return size.evaluate(values)


def _typical(size: Size) -> int:
    value = max(64, size.lo)
    return value if size.hi is None else min(value, size.hi)
