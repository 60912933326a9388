"""Operands of pointwise operators as torch takes them: cast to the operator's common type first, then to the type that
it computes in.

    x_bf16 > 1.7       gt(x, 1.703125)         the number becomes a bf16
    x_bf16 * 1.7       mul(x, 1.7f)            some kernels of torch keep a number as it is: `wide`
    x_u8 == 300        eq(x, 44)
    x_f16 + i_i32      add(x, to_f16(i))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.dtypes import DTYPES, from_torch, to_torch
from ...ir.expr import Call, Const, Expr, cast
from ...ir.index import ONE, Index
from ...machine.targets import Family
from ..core.builder import number, size_value
from ..core.tensor import Tensor

#: positions of operands that torch's kernels of an operator do not round to 16 bits, where they are numbers, by target;
#: CPUs treat a second operand of one element as a number, too
WIDE: dict[Family, dict[str, tuple[int, ...]]] = {
    "cpu": dict.fromkeys(("mul", "div", "div_mode", "floor_divide", "true_divide"), (1,)),
    "cuda": {
        **dict.fromkeys(("div", "div_mode", "floor_divide", "true_divide"), (1,)),
        **dict.fromkeys(("add", "sub", "mul"), (0, 1)),
    },
}


Rounding = Callable[[Expr], Expr]


def rounding(dtype: str) -> Rounding:
    """What a step in a 16-bit type does to its value; nothing for the other types."""
    compute = DTYPES[dtype].compute
    if compute == dtype or DTYPES[dtype].kind != "f":
        return lambda e: e
    return lambda e: cast(cast(e, dtype), compute) if isinstance(e, Const) else Call(f"round_{dtype}", (e,), compute)


def promoted(operands: Sequence[Any]) -> str:
    """The common type of operands that are tensors, numbers and sizes."""
    values: list[Any] = []
    for o in operands:
        if isinstance(o, Tensor):
            values.append(torch.empty((1,) if o.rank else (), dtype=to_torch(o.dtype)))
        else:
            values.append(1.5 if isinstance(o, float) else True if isinstance(o, bool) else 1)
    if len(values) == 1:
        return from_torch(values[0].dtype)
    return from_torch(torch.result_type(values[0], values[1]))


def is_number(operand: Any, family: Family) -> bool:
    """Whether torch's kernels take an operand for a number."""
    one = isinstance(operand, Tensor) and all(n == ONE for n in operand.shape)
    return not isinstance(operand, Tensor) or (one and family == "cpu")


def wide_operands(name: str, operands: Sequence[Any], family: Family) -> tuple[int, ...]:
    """Positions of the numbers that the operator does not round to the common type."""
    return tuple(i for i in WIDE[family].get(name, ()) if i < len(operands) and is_number(operands[i], family))


def element(operand: Any, indices: list[Index], common: str, wide: bool = False) -> Expr:
    """One element of an operand, in the type that the common type computes in."""
    compute = DTYPES[common].compute
    held_in = compute if wide and DTYPES[common].kind == "f" else common
    if isinstance(operand, Tensor):
        e = operand.at_broadcast(indices)
        if DTYPES[common].kind == "f":
            return cast(e, compute) if e.dtype in (held_in, "bool") else rounding(held_in)(cast(e, compute))
        return cast(cast(e, held_in), compute)
    if isinstance(operand, Index):
        return cast(size_value(operand, held_in), compute)
    return cast(number(operand, held_in), compute)
