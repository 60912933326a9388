"""Pointwise operators: a table from ATen overloads to expressions over the operators of ir/ops.py.

Rows say in which type they compute: SAME (the result's type), FLOAT (integers become float first), COMPARE (the
promoted operand type, result bool), BOOL (operands as truth values).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import torch

from ..ir.dtypes import DTYPES, from_torch, to_torch
from ..ir.expr import Const, Expr, cast
from ..ir.index import Index
from .builder import call, compare, number, size_value, where
from .context import Context
from .registry import row
from .tensor import Tensor


class Compute(Enum):
    SAME = auto()
    FLOAT = auto()
    COMPARE = auto()
    BOOL = auto()


SAME, FLOAT, COMPARE, BOOL = Compute.SAME, Compute.FLOAT, Compute.COMPARE, Compute.BOOL
Meaning = Callable[..., Expr]


def _simple(op: str) -> Meaning:
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


def _scalar(x: Expr, value: float | int) -> Expr:
    return number(value, x.dtype)


def _relu(x: Expr) -> Expr:
    return call("maximum", x, _scalar(x, 0))


def _clamp(x: Expr, lo: Expr | None = None, hi: Expr | None = None) -> Expr:
    if lo is not None:
        x = call("maximum", x, lo)
    return x if hi is None else call("minimum", x, hi)


def _gelu(x: Expr, approximate: str = "none") -> Expr:
    return call("gelu_tanh" if approximate == "tanh" else "gelu_erf", x)


def _hardsigmoid(x: Expr) -> Expr:
    return call("div", _clamp(call("add", x, _scalar(x, 3.0)), _scalar(x, 0.0), _scalar(x, 6.0)), _scalar(x, 6.0))


def _hardswish(x: Expr) -> Expr:
    clamped = _clamp(call("add", x, _scalar(x, 3.0)), _scalar(x, 0.0), _scalar(x, 6.0))
    return call("div", call("mul", x, clamped), _scalar(x, 6.0))


def _softplus(x: Expr, beta: Any = 1.0, threshold: Any = 20.0) -> Expr:
    scaled = call("mul", x, number(float(beta), x.dtype))
    soft = call("div", call("log1p", call("exp", scaled)), number(float(beta), x.dtype))
    return where(compare("gt", scaled, number(float(threshold), x.dtype)), x, soft)


def _leaky_relu(x: Expr, slope: Any = 0.01) -> Expr:
    return where(compare("gt", x, _scalar(x, 0)), x, call("mul", x, number(float(slope), x.dtype)))


def _elu(x: Expr, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Expr:
    negative = call("expm1", call("mul", x, number(float(input_scale), x.dtype)))
    negative = call("mul", negative, number(float(alpha) * float(scale), x.dtype))
    positive = call("mul", x, number(float(scale), x.dtype))
    return where(compare("gt", x, _scalar(x, 0)), positive, negative)


def _mish(x: Expr) -> Expr:
    return call("mul", x, call("tanh", _softplus(x)))


def _pow(x: Expr, y: Expr) -> Expr:
    if isinstance(y, Const) and DTYPES[x.dtype].kind == "f":
        if y.value == 2:
            return call("mul", x, x)
        if y.value == 3:
            return call("mul", call("mul", x, x), x)
        if y.value == 0.5:
            return call("sqrt", x)
        if y.value == -0.5:
            return call("rsqrt", x)
        if y.value == 1:
            return x
        if y.value == -1:
            return call("reciprocal", x)
    return call("pow", x, y)


def _lerp(a: Expr, b: Expr, weight: Expr) -> Expr:
    return call("add", a, call("mul", weight, call("sub", b, a)))


def _threshold(x: Expr, threshold: Expr, value: Expr) -> Expr:
    return where(compare("le", x, threshold), value, x)


def _log_sigmoid(x: Expr) -> Expr:
    smallest = call("minimum", x, _scalar(x, 0.0))
    return call("sub", smallest, call("log1p", call("exp", call("neg", call("abs", x)))))


def _nan_to_num(x: Expr, info: torch.finfo, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Expr:
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
        n: (FLOAT, _simple(n))
        for n in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos"),
            *("tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"),
            *("sigmoid", "lgamma"),
        )
    },
    **{n: (COMPARE, _float_test(n, of_integers=n == "isfinite")) for n in ("isnan", "isinf", "isfinite")},
    "relu": (SAME, _relu),
    "relu6": (SAME, lambda x: _clamp(x, _scalar(x, 0), _scalar(x, 6))),
    "silu": (FLOAT, _simple("silu")),
    "gelu": (FLOAT, _gelu),
    "mish": (FLOAT, _mish),
    "hardsigmoid": (FLOAT, _hardsigmoid),
    "hardswish": (FLOAT, _hardswish),
    "log_sigmoid": (FLOAT, _log_sigmoid),
    "logical_not": (BOOL, lambda x: compare("logical_not", x)),
    "bitwise_not": (SAME, lambda x: compare("logical_not", x) if x.dtype == "bool" else call("bit_not", x)),
    "square": (SAME, lambda x: call("mul", x, x)),
    "frac": (FLOAT, lambda x: call("sub", x, call("trunc", x))),
    "positive": (SAME, lambda x: x),
}


def _bits(bit_op: str, bool_op: str) -> Meaning:
    return lambda a, b: compare(bool_op, a, b) if a.dtype == "bool" else call(bit_op, a, b)


def _add(a: Expr, b: Expr) -> Expr:
    return compare("logical_or", a, b) if a.dtype == "bool" else call("add", a, b)


def _mul(a: Expr, b: Expr) -> Expr:
    return compare("logical_and", a, b) if a.dtype == "bool" else call("mul", a, b)


BINARY: dict[str, tuple[Compute, Meaning]] = {
    "mul": (SAME, _mul),
    "true_divide": (FLOAT, _simple("div")),
    "pow": (SAME, _pow),
    "maximum": (SAME, _simple("maximum")),
    "minimum": (SAME, _simple("minimum")),
    "fmax": (SAME, _of_numbers("fmax", "maximum")),
    "fmin": (SAME, _of_numbers("fmin", "minimum")),
    "remainder": (SAME, _simple("remainder")),
    "fmod": (SAME, _simple("fmod")),
    "floor_divide": (SAME, _simple("floor_div")),
    "atan2": (FLOAT, _simple("atan2")),
    "copysign": (FLOAT, _simple("copysign")),
    "hypot": (FLOAT, _simple("hypot")),
    "bitwise_and": (SAME, _bits("bit_and", "logical_and")),
    "bitwise_or": (SAME, _bits("bit_or", "logical_or")),
    "bitwise_xor": (SAME, _bits("bit_xor", "logical_xor")),
    "__and__": (SAME, _bits("bit_and", "logical_and")),
    "__or__": (SAME, _bits("bit_or", "logical_or")),
    "bitwise_left_shift": (SAME, _simple("shift_left")),
    "bitwise_right_shift": (SAME, _simple("shift_right")),
    "__lshift__": (SAME, _simple("shift_left")),
    "__rshift__": (SAME, _simple("shift_right")),
    "logical_and": (BOOL, _compare("logical_and")),
    "logical_or": (BOOL, _compare("logical_or")),
    "logical_xor": (BOOL, _compare("logical_xor")),
    **{n: (COMPARE, _compare(n)) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
}

BINARY_OVERLOADS = ("Tensor", "Scalar", "default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")


def compute_dtype(ctx: Context, kind: Compute, operands: Sequence[Any]) -> str:
    """The type that a row computes in, from its kind and its operands."""
    if kind is BOOL:
        return "bool"
    if kind is COMPARE:
        return _promoted(operands)
    result = ctx.result_dtype()
    return DTYPES[result].compute if result != "bool" else "bool"


def _promoted(operands: Sequence[Any]) -> str:
    values: list[Any] = []
    for o in operands:
        if isinstance(o, Tensor):
            values.append(torch.empty((1,) if o.rank else (), dtype=to_torch(o.dtype)))
        else:
            values.append(1.5 if isinstance(o, float) else True if isinstance(o, bool) else 1)
    if len(values) == 1:
        return DTYPES[from_torch(values[0].dtype)].compute
    result = torch.result_type(values[0], values[1])
    return DTYPES[from_torch(result)].compute


def apply(
    ctx: Context, operands: Sequence[Any], meaning: Meaning, kind: Compute = SAME, dtype: str | None = None
) -> Tensor:
    """A map of `meaning` over broadcast operands (tensors, numbers, sizes); the layout follows the largest operand."""
    shape = ctx.result_shape()
    compute = dtype or compute_dtype(ctx, kind, operands)
    held = [_held(o, operands, compute) for o in operands]

    def element(indices: list[Index]) -> Expr:
        return meaning(*(_element(o, indices, compute) for o in held))

    return ctx.builder.map(shape, ctx.result_dtype(), element, _layout_order(shape, operands))


def _held(operand: Any, operands: Sequence[Any], compute: str) -> Any:
    """A whole number beside narrow integers as torch takes it: as one of them, 300 as the 44 of a u8."""
    types = {o.dtype for o in operands if isinstance(o, Tensor)}
    whole = isinstance(operand, int) and not isinstance(operand, bool)
    if not whole or compute != "i32" or len(types) != 1 or not types <= {"u8", "i8", "i16"}:
        return operand
    number_of_type = number(operand, types.pop())
    assert isinstance(number_of_type, Const)
    return number_of_type.value


def _element(operand: Any, indices: list[Index], dtype: str) -> Expr:
    if isinstance(operand, Tensor):
        return cast(operand.at_broadcast(indices), dtype)
    if isinstance(operand, Index):
        return size_value(operand, dtype)
    return number(operand, dtype)


def _layout_order(shape: tuple[Index, ...], operands: Sequence[Any]) -> tuple[int, ...] | None:
    for operand in operands:
        if isinstance(operand, Tensor) and operand.strided is not None and operand.shape == shape:
            return operand.memory_order()
    return None


def _register_tables() -> None:
    for name, (kind, meaning) in UNARY.items():
        row(f"aten.{name}.default")(_unary(kind, meaning))
    for name, (kind, meaning) in BINARY.items():
        row(*(f"aten.{name}.{overload}" for overload in _tensor_overloads(name)))(_binary(kind, meaning))


def _tensor_overloads(name: str) -> list[str]:
    """The overloads that torch has; those of numbers alone (aten.mul.default) are no operators of a graph."""
    packet = getattr(torch.ops.aten, name)
    found = [overload for overload in BINARY_OVERLOADS if overload in packet.overloads()]
    return [o for o in found if any(isinstance(a.type, torch.TensorType) for a in getattr(packet, o)._schema.arguments)]


def _unary(kind: Compute, meaning: Meaning) -> Callable[..., Tensor]:
    def lowering(ctx: Context, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return apply(ctx, [x], lambda e: meaning(e, *args, **kwargs), kind)

    return lowering


def _binary(kind: Compute, meaning: Meaning) -> Callable[..., Tensor]:
    def lowering(ctx: Context, a: Any, b: Any) -> Tensor:
        return apply(ctx, [a, b], meaning, kind)

    return lowering


_register_tables()


@row("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return apply(ctx, [a, b], lambda x, y: _add(x, _scaled(y, alpha)))


@row("aten.sub.Tensor", "aten.sub.Scalar")
def sub(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return apply(ctx, [a, b], lambda x, y: call("sub", x, _scaled(y, alpha)))


@row("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return apply(ctx, [a, b], lambda x, y: call("sub", y, _scaled(x, alpha)))


def _scaled(e: Expr, alpha: float | int) -> Expr:
    return e if alpha == 1 else _mul(e, number(alpha, e.dtype))


@row("aten.div.Tensor", "aten.div.Scalar")
def div(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], _simple("div"), FLOAT)


@row("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(ctx: Context, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return div(ctx, a, b)
    op = "floor_div" if rounding_mode == "floor" else "trunc_div"
    return apply(ctx, [a, b], _simple(op))


@row("aten.max.other")
def max_other(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], _simple("maximum"))


@row("aten.min.other")
def min_other(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], _simple("minimum"))


@row("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default")
def clamp(ctx: Context, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    given = [v for v in (min, max) if v is not None]

    def meaning(e: Expr, *bounds: Expr) -> Expr:
        rest = list(bounds)
        lo = rest.pop(0) if min is not None else None
        return _clamp(e, lo, rest.pop(0) if max is not None else None)

    return apply(ctx, [x, *given], meaning)


@row("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(ctx: Context, x: Tensor, bound: Any) -> Tensor:
    return apply(ctx, [x, bound], _clamp)


@row("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(ctx: Context, x: Tensor, bound: Any) -> Tensor:
    return apply(ctx, [x, bound], lambda e, hi: _clamp(e, None, hi))


@row("aten.hardtanh.default")
def hardtanh(ctx: Context, x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return apply(ctx, [x, min_val, max_val], _clamp)


@row("aten.leaky_relu.default")
def leaky_relu(ctx: Context, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return apply(ctx, [x], lambda e: _leaky_relu(e, negative_slope))


@row("aten.prelu.default")
def prelu(ctx: Context, x: Tensor, weight: Tensor) -> Tensor:
    from .tensor import unsqueeze

    if weight.rank == 1:
        for _ in range(x.rank - 2):
            weight = unsqueeze(weight, weight.rank)
    return apply(ctx, [x, weight], lambda e, w: where(compare("gt", e, _scalar(e, 0)), e, call("mul", e, w)))


@row("aten.elu.default")
def elu(ctx: Context, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return apply(ctx, [x], lambda e: _elu(e, alpha, scale, input_scale))


@row("aten.selu.default")
def selu(ctx: Context, x: Tensor) -> Tensor:
    return apply(ctx, [x], lambda e: _elu(e, 1.6732632423543772, 1.0507009873554805))


@row("aten.celu.default")
def celu(ctx: Context, x: Tensor, alpha: float = 1.0) -> Tensor:
    return apply(ctx, [x], lambda e: _elu(e, alpha, 1.0, 1.0 / alpha))


@row("aten.softplus.default")
def softplus(ctx: Context, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return apply(ctx, [x], lambda e: _softplus(e, beta, threshold), FLOAT)


@row("aten.threshold.default")
def threshold(ctx: Context, x: Tensor, threshold: float, value: float) -> Tensor:
    return apply(ctx, [x, threshold, value], _threshold)


@row("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where_op(ctx: Context, condition: Tensor, a: Any, b: Any) -> Tensor:
    return select_elements(ctx, condition, a, b)


@row("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: Context, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return select_elements(ctx, mask, value, x)


def select_elements(ctx: Context, condition: Tensor, a: Any, b: Any) -> Tensor:
    """where(condition, a, b) with broadcasting."""
    shape, dtype = ctx.result_shape(), ctx.result_dtype()
    compute = DTYPES[dtype].compute

    def element(indices: list[Index]) -> Expr:
        truth = cast(condition.at_broadcast(indices), "bool")
        return where(truth, _element(a, indices, compute), _element(b, indices, compute))

    return ctx.builder.map(shape, dtype, element, _layout_order(shape, [a, b, condition]))


@row("aten.addcmul.default")
def addcmul(ctx: Context, x: Tensor, a: Tensor, b: Tensor, value: float = 1) -> Tensor:
    return apply(ctx, [x, a, b], lambda e, p, q: call("add", e, _scaled(call("mul", p, q), value)))


@row("aten.addcdiv.default")
def addcdiv(ctx: Context, x: Tensor, a: Tensor, b: Tensor, value: float = 1) -> Tensor:
    return apply(ctx, [x, a, b], lambda e, p, q: call("add", e, _scaled(call("div", p, q), value)), FLOAT)


@row("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(ctx: Context, a: Tensor, b: Tensor, weight: Any) -> Tensor:
    return apply(ctx, [a, b, weight], _lerp)


@row("aten.nan_to_num.default")
def nan_to_num(ctx: Context, x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    if DTYPES[x.dtype].kind != "f":
        return x
    info = torch.finfo(to_torch(x.dtype))
    return apply(ctx, [x], lambda e: _nan_to_num(e, info, nan, posinf, neginf))


@row(
    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.to.other",
    "aten.type_as.default",
    "prims.convert_element_type.default",
)
def convert(ctx: Context, x: Tensor, *_: Any, **__: Any) -> Tensor:
    dtype = ctx.result_dtype()
    if dtype == x.dtype:
        return x
    return ctx.builder.map(x.shape, dtype, x.at, x.memory_order())
