"""Numbers that the model reads from tensors (`x.sum().item()`) and computes with: tensors of one element.

Sizes are indices (shapes.py); what may be negative, a fraction or a truth value is a number of this file, also when it
is made of sizes alone (`x.shape[1] ** -0.5`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from torch.fx.experimental import symbolic_shapes

from ....runtime.errors import CompileError
from ...ir.dtypes import DTYPES
from ...ir.expr import Expr, cast
from ...ir.index import Index
from .builder import Builder, call, compare, number, size_value, where
from .tensor import Tensor

#: of Python's numbers: floats are float64, ints int64
Meaning = Callable[..., Expr]


def _same(op: str) -> Meaning:
    return lambda *args: call(op, *args)


def _compared(op: str) -> Meaning:
    return lambda a, b: compare(op, a, b)


def _rounded(op: str) -> Meaning:
    return lambda x: cast(call(op, x) if x.dtype == "f64" else x, "i64")


_ARITHMETIC: Mapping[Any, Meaning] = {
    operator.add: _same("add"),
    operator.sub: _same("sub"),
    operator.mul: _same("mul"),
    operator.neg: _same("neg"),
    operator.floordiv: _same("floor_div"),
    operator.mod: _same("remainder"),
    operator.pow: _same("pow"),
    operator.truediv: lambda a, b: call("div", cast(a, "f64"), cast(b, "f64")),
    torch.sym_max: _same("maximum"),
    torch.sym_min: _same("minimum"),
    torch.sym_float: lambda x: cast(x, "f64"),
    torch.sym_int: _rounded("trunc"),
    math.trunc: _rounded("trunc"),
    math.floor: _rounded("floor"),
    math.ceil: _rounded("ceil"),
    round: _rounded("round"),
    torch.sym_ite: lambda c, a, b: where(cast(c, "bool"), a, b),
    symbolic_shapes.cast_symbool_to_symint_guardless: lambda c: cast(cast(c, "bool"), "i64"),  # before torch 2.13
    operator.eq: _compared("eq"),
    operator.ne: _compared("ne"),
    operator.lt: _compared("lt"),
    operator.le: _compared("le"),
    operator.gt: _compared("gt"),
    operator.ge: _compared("ge"),
    torch.sym_not: lambda x: compare("logical_not", cast(x, "bool")),
    operator.not_: lambda x: compare("logical_not", cast(x, "bool")),
    operator.and_: lambda a, b: compare("logical_and", cast(a, "bool"), cast(b, "bool")),
    operator.or_: lambda a, b: compare("logical_or", cast(a, "bool"), cast(b, "bool")),
}


def computed_number(builder: Builder, node: torch.fx.Node, operands: list[Any]) -> Tensor:
    """The number that a node computes from numbers, sizes and constants; as torch records it: SymInt, SymFloat..."""
    value = _value(node, operands)
    return builder.map((), value.dtype, lambda _: value)


def size_number(node: torch.fx.Node, operands: list[Any]) -> Tensor:
    """The fraction or truth value that a node computes from sizes: it needs no memory."""
    value = _value(node, operands)
    return Tensor((), value.dtype, make=lambda _: value)


def _value(node: torch.fx.Node, operands: list[Any]) -> Expr:
    meaning = _ARITHMETIC.get(node.target) or _ARITHMETIC.get(_of_math(node.target))
    if meaning is None:
        raise CompileError(f"{getattr(node.target, '__name__', node.target)} of a size or a number that the run finds")
    parts = [_expression(o) for o in operands]
    wide = "f64" if any(DTYPES[p.dtype].kind == "f" for p in parts) else "i64"
    parts = [cast(p, wide) for p in parts]
    return meaning(*parts)


def _of_math(target: Any) -> Any:
    """Python's function behind torch's own form of it (torch._sym_sqrt, math.trunc, ...)."""
    return getattr(math, getattr(target, "__name__", "").removeprefix("_sym_"), None)


def _expression(operand: Any) -> Expr:
    if isinstance(operand, Tensor):
        value = operand.at([])
        return cast(value, DTYPES[value.dtype].compute)
    if isinstance(operand, Index):
        return size_value(operand, "i64")
    return number(operand, "f64" if isinstance(operand, float) else "i64")
