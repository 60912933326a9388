"""Pointwise operators: maps over broadcast operands, by the tables of meanings.py or with arguments of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.dtypes import DTYPES, from_torch, to_torch
from ..ir.expr import Const, Expr, cast
from ..ir.index import Index
from . import meanings
from .builder import call, compare, number, size_value, where
from .context import Context
from .meanings import BINARY, BOOL, COMPARE, FLOAT, SAME, UNARY, Compute, Meaning
from .registry import row
from .tensor import Tensor

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
    return apply(ctx, [a, b], lambda x, y: meanings.add(x, _scaled(y, alpha)))


@row("aten.sub.Tensor", "aten.sub.Scalar")
def sub(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return apply(ctx, [a, b], lambda x, y: call("sub", x, _scaled(y, alpha)))


@row("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return apply(ctx, [a, b], lambda x, y: call("sub", y, _scaled(x, alpha)))


def _scaled(e: Expr, alpha: float | int) -> Expr:
    return e if alpha == 1 else meanings.mul(e, number(alpha, e.dtype))


@row("aten.div.Tensor", "aten.div.Scalar")
def div(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], meanings.simple("div"), FLOAT)


@row("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(ctx: Context, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return div(ctx, a, b)
    op = "floor_div" if rounding_mode == "floor" else "trunc_div"
    return apply(ctx, [a, b], meanings.simple(op))


@row("aten.max.other")
def max_other(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], meanings.simple("maximum"))


@row("aten.min.other")
def min_other(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], meanings.simple("minimum"))


@row("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor")
def clamp(ctx: Context, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    given = [v for v in (min, max) if v is not None]

    def meaning(e: Expr, *bounds: Expr) -> Expr:
        rest = list(bounds)
        lo = rest.pop(0) if min is not None else None
        return meanings.clamp(e, lo, rest.pop(0) if max is not None else None)

    return apply(ctx, [x, *given], meaning)


@row("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(ctx: Context, x: Tensor, bound: Any) -> Tensor:
    return apply(ctx, [x, bound], meanings.clamp)


@row("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(ctx: Context, x: Tensor, bound: Any) -> Tensor:
    return apply(ctx, [x, bound], lambda e, hi: meanings.clamp(e, None, hi))


@row("aten.hardtanh.default")
def hardtanh(ctx: Context, x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return apply(ctx, [x, min_val, max_val], meanings.clamp)


@row("aten.leaky_relu.default")
def leaky_relu(ctx: Context, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return apply(ctx, [x], lambda e: meanings.leaky_relu(e, negative_slope))


@row("aten.prelu.default")
def prelu(ctx: Context, x: Tensor, weight: Tensor) -> Tensor:
    from .tensor import squeeze, unsqueeze

    if weight.rank > x.rank:  # a number takes the one weight
        weight = squeeze(weight, 0)
    elif weight.rank == 1:
        for _ in range(x.rank - 2):
            weight = unsqueeze(weight, weight.rank)
    return apply(ctx, [x, weight], lambda e, w: where(compare("gt", e, meanings.scalar(e, 0)), e, call("mul", e, w)))


@row("aten.elu.default")
def elu(ctx: Context, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return apply(ctx, [x], lambda e: meanings.elu(e, alpha, scale, input_scale))


@row("aten.selu.default")
def selu(ctx: Context, x: Tensor) -> Tensor:
    return apply(ctx, [x], lambda e: meanings.elu(e, 1.6732632423543772, 1.0507009873554805))


@row("aten.celu.default")
def celu(ctx: Context, x: Tensor, alpha: float = 1.0) -> Tensor:
    return apply(ctx, [x], lambda e: meanings.elu(e, alpha, 1.0, 1.0 / alpha))


@row("aten.softplus.default")
def softplus(ctx: Context, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return apply(ctx, [x], lambda e: meanings.softplus(e, beta, threshold), FLOAT)


@row("aten.threshold.default")
def threshold(ctx: Context, x: Tensor, threshold: float, value: float) -> Tensor:
    return apply(ctx, [x, threshold, value], meanings.threshold)


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
    return apply(ctx, [a, b, weight], meanings.lerp)


@row("aten.nan_to_num.default")
def nan_to_num(ctx: Context, x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    if DTYPES[x.dtype].kind != "f":
        return x
    info = torch.finfo(to_torch(x.dtype))
    return apply(ctx, [x], lambda e: meanings.nan_to_num(e, info, nan, posinf, neginf))


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
