"""Pointwise operators: maps over broadcast operands, by the tables of table.py or with arguments of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.dtypes import DTYPES, held, to_torch
from ...ir.expr import Const, Expr, cast
from ...ir.index import Index
from ..core.builder import call, compare, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor
from . import table
from .create import filled
from .operands import element, promoted, rounding, wide_operands
from .table import (
    BINARY,
    BOOL,
    COMPARE,
    FLOAT,
    SAME,
    UNARY,
    Compute,
    Meaning,
)

BINARY_OVERLOADS = ("Tensor", "Scalar", "default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")


def common_dtype(ctx: Context, kind: Compute, operands: Sequence[Any]) -> str:
    """The type that a row's operands are cast to, from its kind and its operands."""
    if kind is BOOL:
        return "bool"
    return promoted(operands) if kind is COMPARE else ctx.result_dtype()


def apply(
    ctx: Context,
    operands: Sequence[Any],
    meaning: Meaning,
    kind: Compute = SAME,
    dtype: str | None = None,
    wide: Sequence[int] = (),
) -> Tensor:
    """A map of `meaning` over broadcast operands (tensors, numbers, sizes); the layout follows the largest operand.

    dtype: what the operands are cast to, where kind does not say it. wide: positions of operands that are not rounded
    to 16 bits.
    """
    shape = ctx.result_shape()
    common = dtype or common_dtype(ctx, kind, operands)

    def value(indices: list[Index]) -> Expr:
        return meaning(*(element(o, indices, common, i in wide) for i, o in enumerate(operands)))

    return ctx.builder.map(shape, ctx.result_dtype(), value, _layout_order(shape, operands))


def _layout_order(shape: tuple[Index, ...], operands: Sequence[Any]) -> tuple[int, ...] | None:
    for operand in operands:
        if isinstance(operand, Tensor) and operand.strided is not None and operand.shape == shape:
            return operand.memory_order()
    return None


def _register_tables() -> None:
    for name, (kind, meaning) in UNARY.items():
        row(f"aten.{name}.default")(_unary(kind, meaning))
    for name, (kind, meaning) in BINARY.items():
        row(*(f"aten.{name}.{overload}" for overload in _tensor_overloads(name)))(_binary(name, kind, meaning))


def _tensor_overloads(name: str) -> list[str]:
    """The overloads that torch has; those of numbers alone (aten.mul.default) are no operators of a graph."""
    packet = getattr(torch.ops.aten, name)
    found = [overload for overload in BINARY_OVERLOADS if overload in packet.overloads()]
    return [o for o in found if any(isinstance(a.type, torch.TensorType) for a in getattr(packet, o)._schema.arguments)]


def _unary(kind: Compute, meaning: Meaning) -> Callable[..., Tensor]:
    def lowering(ctx: Context, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return apply(ctx, [x], lambda e: meaning(e, *args, **kwargs), kind)

    return lowering


def _binary(name: str, kind: Compute, meaning: Meaning) -> Callable[..., Tensor]:
    def lowering(ctx: Context, a: Any, b: Any) -> Tensor:
        return apply(ctx, [a, b], meaning, kind, wide=wide_operands(name, [a, b], ctx.builder.family))

    return lowering


_register_tables()


@row("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return _sum(ctx, a, b, alpha, table.add)


@row("aten.sub.Tensor", "aten.sub.Scalar")
def sub(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return _sum(ctx, a, b, alpha, table.sub)


@row("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(ctx: Context, a: Any, b: Any, alpha: float | int = 1) -> Tensor:
    return _sum(ctx, b, a, alpha, table.sub)


def _sum(ctx: Context, a: Any, b: Any, alpha: float | int, meaning: Meaning) -> Tensor:
    """a + alpha b or a - alpha b, the product not rounded. CPUs round alpha to the operands' type, GPUs do not."""
    family, common = ctx.builder.family, ctx.result_dtype()
    factor = element(alpha, [], common, wide=family == "cuda")
    if isinstance(factor, Const) and factor.value != 1 and DTYPES[factor.dtype].kind == "f":
        assert isinstance(factor.value, float)
        sign = -1.0 if meaning is table.sub else 1.0
        signed = Const(sign * factor.value, factor.dtype)
        return apply(ctx, [a, b], lambda x, y: call("fma", signed, y, x), wide=wide_operands("add", [a, b], family))
    return apply(ctx, [a, b], lambda x, y: meaning(x, _scaled(y, factor)), wide=wide_operands("add", [a, b], family))


def _scaled(e: Expr, alpha: Expr) -> Expr:
    return e if isinstance(alpha, Const) and alpha.value == 1 else table.mul(e, alpha)


@row("aten.max.other")
def max_other(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], table.simple("maximum"))


@row("aten.min.other")
def min_other(ctx: Context, a: Any, b: Any) -> Tensor:
    return apply(ctx, [a, b], table.simple("minimum"))


@row("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor")
def clamp(ctx: Context, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    given = [v for v in (min, max) if v is not None]

    def meaning(e: Expr, *bounds: Expr) -> Expr:
        rest = list(bounds)
        lo = rest.pop(0) if min is not None else None
        return table.clamp(e, lo, rest.pop(0) if max is not None else None)

    return apply(ctx, [x, *given], meaning)


@row("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(ctx: Context, x: Tensor, bound: Any) -> Tensor:
    return apply(ctx, [x, bound], table.clamp)


@row("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(ctx: Context, x: Tensor, bound: Any) -> Tensor:
    return apply(ctx, [x, bound], lambda e, hi: table.clamp(e, None, hi))


@row("aten.hardtanh.default")
def hardtanh(ctx: Context, x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return apply(ctx, [x, min_val, max_val], table.clamp)


@row("aten.leaky_relu.default")
def leaky_relu(ctx: Context, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return apply(ctx, [x], lambda e: table.leaky_relu(e, negative_slope))


@row("aten.prelu.default")
def prelu(ctx: Context, x: Tensor, weight: Tensor) -> Tensor:
    from ..core.tensor import squeeze, unsqueeze

    if weight.rank > x.rank:  # a number takes the one weight
        weight = squeeze(weight, 0)
    elif weight.rank == 1:
        for _ in range(x.rank - 2):
            weight = unsqueeze(weight, weight.rank)
    return apply(ctx, [x, weight], lambda e, w: where(compare("gt", e, table.scalar(e, 0)), e, call("mul", e, w)))


@row("aten.hardsigmoid.default")
def hardsigmoid(ctx: Context, x: Tensor) -> Tensor:
    return apply(ctx, [x], lambda e: table.hardsigmoid(e, _sixth(ctx)), FLOAT)


@row("aten.hardswish.default")
def hardswish(ctx: Context, x: Tensor) -> Tensor:
    return apply(ctx, [x], lambda e: table.hardswish(e, _sixth(ctx)), FLOAT)


def _sixth(ctx: Context) -> Callable[[Expr], Expr]:
    """A sixth of a value: GPUs multiply by 1/6 as a float32, of f64 too."""
    if ctx.builder.family == "cpu":
        return lambda e: call("div", e, table.scalar(e, 6.0))
    return lambda e: call("mul", e, table.scalar(e, held(1.0 / 6.0, "f32")))


@row("aten.elu.default")
def elu(ctx: Context, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return apply(ctx, [x], lambda e: table.elu(e, alpha, scale, input_scale))


@row("aten.selu.default")
def selu(ctx: Context, x: Tensor) -> Tensor:
    return apply(ctx, [x], lambda e: table.elu(e, 1.6732632423543772, 1.0507009873554805))


@row("aten.celu.default")
def celu(ctx: Context, x: Tensor, alpha: float = 1.0) -> Tensor:
    return apply(ctx, [x], lambda e: table.elu(e, alpha, 1.0, 1.0 / alpha))


@row("aten.softplus.default")
def softplus(ctx: Context, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return apply(ctx, [x], lambda e: table.softplus(e, beta, threshold), FLOAT)


@row("aten.threshold.default")
def threshold(ctx: Context, x: Tensor, threshold: float, value: float) -> Tensor:
    """CPUs compare with the number as it is, GPUs round it to the type of x."""
    wide = (1, 2) if ctx.builder.family == "cpu" else ()
    return apply(ctx, [x, threshold, value], table.threshold, wide=wide)


@row("aten.softshrink.default")
def softshrink(ctx: Context, x: Tensor, bound: float = 0.5) -> Tensor:
    """CPUs compute with the bound as it is, GPUs round it to the type of x."""
    return apply(ctx, [x, bound], table.softshrink, wide=(1,) if ctx.builder.family == "cpu" else ())


@row("aten.logit.default")
def logit(ctx: Context, x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)); CPUs round each step to the type of x."""
    step = rounding(ctx.result_dtype()) if ctx.builder.family == "cpu" else lambda e: e

    def meaning(e: Expr) -> Expr:
        one = table.scalar(e, 1.0)
        if eps is not None and eps >= 0:
            low = step(table.scalar(e, float(eps)))
            assert isinstance(low, Const)
            high = step(table.scalar(e, 1.0 - float(low.value)))
            e = where(compare("lt", e, low), low, where(compare("gt", e, high), high, e))
        return call("log", step(call("div", e, step(call("sub", one, e)))))

    return apply(ctx, [x], meaning, FLOAT)


@row("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where_op(ctx: Context, condition: Tensor, a: Any, b: Any) -> Tensor:
    return select_elements(ctx, condition, a, b)


@row("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: Context, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return select_elements(ctx, mask, value, x)


def select_elements(ctx: Context, condition: Tensor, a: Any, b: Any) -> Tensor:
    """where(condition, a, b) with broadcasting."""
    shape, dtype = ctx.result_shape(), ctx.result_dtype()

    def value(indices: list[Index]) -> Expr:
        truth = cast(condition.at_broadcast(indices), "bool")
        return where(truth, element(a, indices, dtype), element(b, indices, dtype))

    return ctx.builder.map(shape, dtype, value, _layout_order(shape, [a, b, condition]))


@row("aten.addcmul.default")
def addcmul(ctx: Context, x: Tensor, a: Tensor, b: Tensor, value: float = 1) -> Tensor:
    """x + value a b, as each target's kernels multiply: (value a) b on CPUs, value (a b) on GPUs."""
    factor = element(value, [], ctx.result_dtype(), wide=True)

    def meaning(e: Expr, p: Expr, q: Expr) -> Expr:
        if DTYPES[e.dtype].kind != "f":
            return table.add(e, _scaled(call("mul", p, q), factor))
        if ctx.builder.family == "cuda":
            return call("fma", factor, call("mul", p, q), e)
        return call("fma", _scaled(p, factor), q, e)

    return apply(ctx, [x, a, b], meaning)


@row("aten.addcdiv.default")
def addcdiv(ctx: Context, x: Tensor, a: Tensor, b: Tensor, value: float = 1) -> Tensor:
    """x + value a / b: (value a) / b on CPUs, value (a / b) on GPUs."""
    factor = element(value, [], ctx.result_dtype(), wide=True)

    def meaning(e: Expr, p: Expr, q: Expr) -> Expr:
        if ctx.builder.family == "cuda":
            return call("fma", factor, call("div", p, q), e)
        return call("add", e, call("div", _scaled(p, factor), q))

    return apply(ctx, [x, a, b], meaning, FLOAT)


@row("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(ctx: Context, a: Tensor, b: Tensor, weight: Any) -> Tensor:
    return apply(ctx, [a, b, weight], table.lerp, wide=(2,))


@row("aten.nan_to_num.default")
def nan_to_num(ctx: Context, x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    if DTYPES[x.dtype].kind != "f":
        return x
    info = torch.finfo(to_torch(x.dtype))
    return apply(ctx, [x], lambda e: table.nan_to_num(e, info, nan, posinf, neginf))


@row(
    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.to.other",
    "aten.type_as.default",
    "prims.convert_element_type.default",
)
def convert(ctx: Context, x: Tensor | complex, *_: Any, **__: Any) -> Tensor:
    dtype = ctx.result_dtype()
    if not isinstance(x, Tensor):
        return filled((), dtype, x)
    if dtype == x.dtype:
        return x
    return ctx.builder.map(x.shape, dtype, x.at, x.memory_order())
