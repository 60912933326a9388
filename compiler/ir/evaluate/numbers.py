"""How elements are held while a program is evaluated, and what has no value.

Floats are float64, whatever their type; integers and bools have the width of their type. With `roundings`, a float is
rounded to its type wherever a kernel rounds it: after each scalar operator to the type that it computes in, and in
memory to the type of the buffer. Complex numbers are pairs of buffers in the loop IR, and need nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DTYPES
from ..expr import Call, Const, Expr
from ..ops import OPS, cast_op

Array = NDArray[Any]
#: integer operators that fail the call where the divisor is 0
DIVISIONS = ("floor_div", "remainder", "trunc_div", "fmod")


class CallFails(Exception):
    """The program itself ends with an error: an index out of range, an assertion, a division of integers by zero."""


class Undefined(Exception):
    """The program has no meaning: it breaks a law of the loop IR that no index arithmetic shows."""


@dataclass(frozen=True)
class Fault:
    """Places at which a value does not exist, and why. It counts only where the value is stored."""

    where: Array  # bool; shaped to broadcast
    error: Exception

    def counts(self, shape: Sequence[int]) -> bool:
        """Whether one of so many iterations has no value."""
        return bool(np.broadcast_to(self.where, tuple(shape)).any())


@dataclass(frozen=True)
class Value:
    """A number for every iteration of some loops, shaped to broadcast; in the type that the expression computes in."""

    array: Array
    fault: Fault | None = None

    def over(self, shape: Sequence[int]) -> Array:
        """The numbers of all iterations; raises where one of them does not exist."""
        if self.fault is not None and self.fault.counts(shape):
            raise self.fault.error
        return np.broadcast_to(self.array, tuple(shape))


def any_fault(faults: Sequence[Fault | None]) -> Fault | None:
    """Where one of several operands has no value."""
    found = [f for f in faults if f is not None]
    where: Any = False
    for fault in found:
        where = where | fault.where
    return Fault(np.asarray(where), found[0].error) if found else None


def storage(dtype: str) -> np.dtype[Any]:
    """What elements in memory are held in."""
    row = DTYPES[dtype]
    if row.kind == "f":
        return np.dtype(np.float64)
    return np.dtype(bool if row.kind == "b" else f"{'u' if dtype.startswith('u') else ''}int{8 * row.size}")


def computing(dtype: str) -> np.dtype[Any]:
    """What values of a type are computed in."""
    return storage(DTYPES[dtype].compute)


@dataclass(frozen=True)
class Numbers:
    """The arithmetic of one evaluation. roundings: floats are rounded as kernels round them."""

    roundings: bool = False

    def held(self, values: Array, dtype: str) -> Array:
        """Values as elements of a type: integers wrap, floats are rounded where roundings are asked for."""
        if DTYPES[dtype].kind == "f":
            return self._rounded(values, dtype)
        return values.astype(storage(dtype))

    def computed(self, values: Array, dtype: str) -> Array:
        """The result of an operator of this type."""
        return self._rounded(values.astype(computing(dtype), copy=False), DTYPES[dtype].compute)

    def constant(self, e: Const) -> Array:
        if DTYPES[e.dtype].kind == "f":
            return self.computed(np.asarray(float(e.value)), e.dtype)
        return np.asarray(int(e.value)).astype(computing(e.dtype))

    def call(self, e: Call, args: Sequence[Value]) -> Value:
        """A scalar operator, by its row of the table."""
        fault = any_fault([a.fault for a in args])
        if e.op == "cast":
            return Value(self._cast(args[0].array, e.args[0], e.dtype), fault)
        if e.op == "where":
            return self._where(args, e.dtype)
        if e.op in DIVISIONS and DTYPES[e.dtype].kind == "i":
            zero = Fault(args[1].array == 0, CallFails("integer division by zero"))
            fault = any_fault([fault, zero]) if zero.where.any() else fault
        return Value(self.computed(_reference(e.op, [a.array for a in args]), e.dtype), fault)

    def _where(self, args: Sequence[Value], dtype: str) -> Value:
        """The value that is not taken need not exist."""
        condition, *sides = args
        taken = (condition.array, ~condition.array)
        faults = [condition.fault]
        for side, here in zip(sides, taken, strict=True):
            faults.append(None if side.fault is None else Fault(side.fault.where & here, side.fault.error))
        result = _reference("where", [a.array for a in args])
        return Value(self.computed(result, dtype), any_fault(faults))

    def _cast(self, values: Array, source: Expr, dtype: str) -> Array:
        """Float to float changes nothing but roundings; all else is what the table says."""
        if DTYPES[dtype].kind == "f":
            return self._rounded(values.astype(np.float64), dtype)
        if DTYPES[dtype].kind == DTYPES[source.dtype].kind == "i":
            return values.astype(storage(dtype)).astype(computing(dtype))
        return _reference(cast_op(dtype).name, [values]).astype(computing(dtype))

    def _rounded(self, values: Array, dtype: str) -> Array:
        if not self.roundings or dtype == "f64" or DTYPES[dtype].kind != "f":
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            near = values.astype(np.float32)
            if dtype == "f16":
                near = near.astype(np.float16)
            elif dtype == "bf16":
                near = _upper_half(near)
            return near.astype(np.float64)


def _upper_half(values: Array) -> Array:
    """float32 numbers rounded to the nearest that has zeros in its lower 16 bits, ties to even."""
    bits = values.view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), nearest.view(np.float32), values)


def _reference(op: str, operands: Sequence[Array]) -> Array:
    """The reference of a row of ir/ops.py: it takes torch tensors of float64, int32, int64 or bool."""
    import torch

    with torch.no_grad():
        given = [torch.from_numpy(np.array(a, order="C", copy=True)) for a in operands]
        result: Array = OPS[op].reference(*given).numpy()
    return result
