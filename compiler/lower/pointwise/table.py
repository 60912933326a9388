"""What pointwise operators compute of one element of each operand: expressions over the operators of ir/ops.py.

Rows say in which type they compute: SAME (the result's type), FLOAT (integers become float first), COMPARE (the
promoted operand type, result bool), BOOL (operands as truth values).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import torch

from ...ir.dtypes import DTYPES
from ...ir.expr import Const, Expr
from ..core.builder import call, compare, number, where


class Compute(Enum):
    """The type that a row computes in."""

    SAME = auto()
    FLOAT = auto()
    COMPARE = auto()
    BOOL = auto()


SAME, FLOAT, COMPARE, BOOL = Compute.SAME, Compute.FLOAT, Compute.COMPARE, Compute.BOOL
Meaning = Callable[..., Expr]


def simple(op: str) -> Meaning:
    return lambda *args: call(op, *args)


def _compare(op: str) -> Meaning:
    return lambda *args: compare(op, *args)


def _float_test(op: str, of_integers: bool) -> Meaning:
    """A question that only floats leave open."""
    return lambda x: compare(op, x) if DTYPES[x.dtype].kind == "f" else Const(of_integers, "bool")


def _rounding(op: str) -> Meaning:
    """Integers are whole already."""
    return lambda x: call(op, x) if DTYPES[x.dtype].kind == "f" else x


def _of_bools(op: str) -> Meaning:
    """A truth value is its own sign and magnitude."""
    return lambda x: x if x.dtype == "bool" else call(op, x)


def _of_numbers(op: str, of_integers: str) -> Meaning:
    """An operator whose answer differs for floats, which may be NaN."""
    return lambda a, b: call(op if DTYPES[a.dtype].kind == "f" else of_integers, a, b)


def scalar(x: Expr, value: float | int) -> Expr:
    return number(value, x.dtype)


def _relu(x: Expr) -> Expr:
    return call("maximum", x, scalar(x, 0))


def clamp(x: Expr, lo: Expr | None = None, hi: Expr | None = None) -> Expr:
    if lo is not None:
        x = call("maximum", x, lo)
    return x if hi is None else call("minimum", x, hi)


def _gelu(x: Expr, approximate: str = "none") -> Expr:
    return call("gelu_tanh" if approximate == "tanh" else "gelu_erf", x)


def hardsigmoid(x: Expr, sixth: Callable[[Expr], Expr]) -> Expr:
    return sixth(clamp(call("add", x, scalar(x, 3.0)), scalar(x, 0.0), scalar(x, 6.0)))


def hardswish(x: Expr, sixth: Callable[[Expr], Expr]) -> Expr:
    return sixth(call("mul", x, clamp(call("add", x, scalar(x, 3.0)), scalar(x, 0.0), scalar(x, 6.0))))


def softplus(x: Expr, beta: Any = 1.0, threshold: Any = 20.0) -> Expr:
    scaled = call("mul", x, number(float(beta), x.dtype))
    soft = call("div", call("log1p", call("exp", scaled)), number(float(beta), x.dtype))
    return where(compare("gt", scaled, number(float(threshold), x.dtype)), x, soft)


def leaky_relu(x: Expr, slope: Any = 0.01) -> Expr:
    return where(compare("gt", x, scalar(x, 0)), x, call("mul", x, number(float(slope), x.dtype)))


def elu(x: Expr, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Expr:
    negative = call("expm1", call("mul", x, number(float(input_scale), x.dtype)))
    negative = call("mul", negative, number(float(alpha) * float(scale), x.dtype))
    positive = call("mul", x, number(float(scale), x.dtype))
    return where(compare("gt", x, scalar(x, 0)), positive, negative)


def _mish(x: Expr) -> Expr:
    return call("mul", x, call("tanh", softplus(x)))


def lerp(a: Expr, b: Expr, weight: Expr) -> Expr:
    """From the nearer end, so that both ends are exact."""
    step = call("sub", b, a)
    near = call("fma", weight, step, a)
    far = call("fma", call("sub", weight, scalar(weight, 1.0)), step, b)
    if isinstance(weight, Const):
        return near if abs(float(weight.value)) < 0.5 else far
    return where(compare("lt", call("abs", weight), scalar(weight, 0.5)), near, far)


def softshrink(x: Expr, bound: Expr) -> Expr:
    """x - bound above, x + bound below, 0 between; NaN stays."""
    zero = where(compare("isnan", x), x, scalar(x, 0.0))
    below = where(compare("lt", x, call("neg", bound)), call("add", x, bound), zero)
    return where(compare("gt", x, bound), call("sub", x, bound), below)


def threshold(x: Expr, threshold: Expr, value: Expr) -> Expr:
    return where(compare("le", x, threshold), value, x)


def _log_sigmoid(x: Expr) -> Expr:
    smallest = call("minimum", x, scalar(x, 0.0))
    return call("sub", smallest, call("log1p", call("exp", call("neg", call("abs", x)))))


def nan_to_num(x: Expr, info: torch.finfo, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Expr:
    x = where(compare("isnan", x), number(float(nan or 0.0), x.dtype), x)
    top = number(float(info.max if posinf is None else posinf), x.dtype)
    bottom = number(float(info.min if neginf is None else neginf), x.dtype)
    x = where(compare("eq", x, number(float("inf"), x.dtype)), top, x)
    return where(compare("eq", x, number(float("-inf"), x.dtype)), bottom, x)


#: aten name without namespace (every overload that is listed) -> (computes in, meaning)
UNARY: dict[str, tuple[Compute, Meaning]] = {
    **{n: (SAME, _of_bools(n)) for n in ("abs", "neg", "sign")},
    **{n: (SAME, _rounding(n)) for n in ("floor", "ceil", "round", "trunc")},
    **{
        n: (FLOAT, simple(n))
        for n in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos"),
            *("tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"),
            *("sigmoid", "lgamma"),
        )
    },
    **{n: (COMPARE, _float_test(n, of_integers=n == "isfinite")) for n in ("isnan", "isinf", "isfinite")},
    "relu": (SAME, _relu),
    "relu6": (SAME, lambda x: clamp(x, scalar(x, 0), scalar(x, 6))),
    "silu": (FLOAT, simple("silu")),
    "gelu": (FLOAT, _gelu),
    "mish": (FLOAT, _mish),
    "log_sigmoid": (FLOAT, _log_sigmoid),
    "logical_not": (BOOL, lambda x: compare("logical_not", x)),
    "bitwise_not": (SAME, lambda x: compare("logical_not", x) if x.dtype == "bool" else call("bit_not", x)),
    "square": (SAME, lambda x: call("mul", x, x)),
    "frac": (FLOAT, lambda x: call("sub", x, call("trunc", x))),
    "positive": (SAME, lambda x: x),
}


def _bits(bit_op: str, bool_op: str) -> Meaning:
    return lambda a, b: compare(bool_op, a, b) if a.dtype == "bool" else call(bit_op, a, b)


def add(a: Expr, b: Expr) -> Expr:
    return compare("logical_or", a, b) if a.dtype == "bool" else call("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return call("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return compare("logical_and", a, b) if a.dtype == "bool" else call("mul", a, b)


BINARY: dict[str, tuple[Compute, Meaning]] = {
    "mul": (SAME, mul),
    "maximum": (SAME, simple("maximum")),
    "minimum": (SAME, simple("minimum")),
    "fmax": (SAME, _of_numbers("fmax", "maximum")),
    "fmin": (SAME, _of_numbers("fmin", "minimum")),
    "remainder": (SAME, simple("remainder")),
    "fmod": (SAME, simple("fmod")),
    "atan2": (FLOAT, simple("atan2")),
    "copysign": (FLOAT, simple("copysign")),
    "hypot": (FLOAT, simple("hypot")),
    "bitwise_and": (SAME, _bits("bit_and", "logical_and")),
    "bitwise_or": (SAME, _bits("bit_or", "logical_or")),
    "bitwise_xor": (SAME, _bits("bit_xor", "logical_xor")),
    "__and__": (SAME, _bits("bit_and", "logical_and")),
    "__or__": (SAME, _bits("bit_or", "logical_or")),
    "bitwise_left_shift": (SAME, simple("shift_left")),
    "bitwise_right_shift": (SAME, simple("shift_right")),
    "__lshift__": (SAME, simple("shift_left")),
    "__rshift__": (SAME, simple("shift_right")),
    "logical_and": (BOOL, _compare("logical_and")),
    "logical_or": (BOOL, _compare("logical_or")),
    "logical_xor": (BOOL, _compare("logical_xor")),
    **{n: (COMPARE, _compare(n)) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
}
