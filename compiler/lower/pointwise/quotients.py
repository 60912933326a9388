"""Divisions and powers, whose steps torch's kernels round in the operands' own type.

    div(a, b, "trunc")       f32: trunc(a / b)       bf16: trunc(bf16(a / b))       bf16 by a number: trunc(a / b)
    a // b                   (a - fmod(a, b)) / b, one less where the signs differ, to the nearest whole number

On a GPU torch divides by a number as it multiplies by its reciprocal: by that of the number itself where it divides,
by that of the number as a float32 (float64 of f64) where it rounds the quotient to a whole number. Of that whole
number it keeps 16 bits, but of no step before. `number / x` is number * reciprocal(x) everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dtypes import DTYPES, held
from ...ir.expr import Const, Expr
from ...machine.targets import Family
from ..core.builder import call, compare, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor
from .operands import Rounding, is_number, rounding, wide_operands
from .pointwise import apply
from .table import (
    FLOAT,
    SAME,
    Compute,
    Meaning,
    scalar,
    simple,
)


@row("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.true_divide.Scalar")
def div(ctx: Context, a: Any, b: Any) -> Tensor:
    def by_number(x: Expr, _: Expr, inverse: Expr) -> Expr:
        return call("mul", x, inverse)

    return _divided(ctx, a, b, "div", FLOAT, simple("div"), by_number, exact=True)


@row("aten.reciprocal.default")
def reciprocal(ctx: Context, x: Tensor) -> Tensor:
    """1 / x; rounded to 16 bits on GPUs too, whose kernels would pass it on as a float32: `number / x` of torch."""
    step = rounding(ctx.result_dtype()) if ctx.builder.family == "cuda" else _kept
    return apply(ctx, [x], lambda e: step(_inverse(ctx.builder.family)(e)), FLOAT)


def _inverse(family: Family) -> Meaning:
    """1 / x, rounded as torch does."""
    return simple("reciprocal") if family == "cpu" else lambda x: call("div", scalar(x, 1.0), x)


def _kept(e: Expr) -> Expr:
    """The value of a step that is not rounded."""
    return e


@row("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(ctx: Context, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return div(ctx, a, b)
    if rounding_mode == "floor":
        return floor_divide(ctx, a, b)
    step = _step_rounding(ctx, b)

    def meaning(x: Expr, y: Expr) -> Expr:
        if DTYPES[x.dtype].kind != "f" or step is None:
            return call("trunc_div", x, y)
        return call("trunc", step(call("div", x, y)))

    return _divided(ctx, a, b, "div_mode", SAME, meaning, lambda x, y, inverse: call("trunc", call("mul", x, inverse)))


@row("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(ctx: Context, a: Any, b: Any) -> Tensor:
    step = _step_rounding(ctx, b)

    def meaning(x: Expr, y: Expr) -> Expr:
        if DTYPES[x.dtype].kind != "f" or step is None:
            return call("floor_div", x, y)
        if ctx.builder.family == "cuda":
            return _floor_div(x, y, lambda p: call("div", p, y), whole=step)
        return _floor_div(x, y, lambda p: step(call("div", p, y)), step)

    def by_number(x: Expr, y: Expr, inverse: Expr) -> Expr:
        return _floor_div(x, y, lambda p: call("mul_rn", p, inverse), whole=rounding(ctx.result_dtype()))

    return _divided(ctx, a, b, "floor_divide", SAME, meaning, by_number)


def _step_rounding(ctx: Context, b: Any) -> Rounding | None:
    """How the steps of a quotient are rounded; None: as the type computes."""
    dtype = ctx.result_dtype()
    narrow = DTYPES[dtype].kind == "f" and DTYPES[dtype].compute != dtype
    return rounding(dtype) if narrow and not is_number(b, ctx.builder.family) else None


def _divided(
    ctx: Context,
    a: Any,
    b: Any,
    name: str,
    kind: Compute,
    meaning: Meaning,
    by_number: Callable[[Expr, Expr, Expr], Expr],
    exact: bool = False,
) -> Tensor:
    """A quotient; by_number: of x, y and 1 / y, where a GPU divides floats by a number. exact: 1 / y is that of y
    before it becomes a float32."""

    def value(x: Expr, y: Expr) -> Expr:
        if ctx.builder.family != "cuda" or isinstance(b, Tensor) or DTYPES[y.dtype].kind != "f":
            return meaning(x, y)
        if not isinstance(y, Const):  # a size, which float32 holds
            return by_number(x, y, _inverse("cuda")(y))
        divisor = float(y.value) if exact else held(float(y.value), y.dtype)
        if divisor == 0:
            return meaning(x, y)
        return by_number(x, y, Const(held(1.0 / divisor, y.dtype), y.dtype))

    return apply(ctx, [a, b], value, kind, wide=wide_operands(name, [a, b], ctx.builder.family))


def _floor_div(x: Expr, y: Expr, by_y: Rounding, step: Rounding = _kept, whole: Rounding | None = None) -> Expr:
    """floor(x / y) of floats; by_y: divides by y. step: rounds what a step gives. whole: rounds the whole numbers
    alone, where no step is rounded."""
    end = whole or step
    zero, one = scalar(x, 0.0), scalar(x, 1.0)
    rest = call("fmod", x, y)
    quotient = by_y(step(call("sub", x, rest)))
    signs = compare("ne", compare("lt", rest, zero), compare("lt", y, zero))
    off = compare("logical_and", compare("ne", rest, zero), signs)
    quotient = where(off, step(call("sub", quotient, one)), quotient)
    down = call("floor", quotient) if whole is None else whole(call("floor", quotient))
    near = compare("gt", step(call("sub", quotient, down)), scalar(x, 0.5))
    down = where(near, end(call("add", down, one)), down)
    down = where(compare("eq", quotient, zero), call("copysign", zero, by_y(x)), down)
    return where(compare("eq", y, zero), by_y(x), down)


@row("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def pow(ctx: Context, x: Any, y: Any) -> Tensor:
    dtype = ctx.result_dtype()
    whole = not isinstance(y, Tensor) and DTYPES[dtype].kind == "f"
    special = _powers(dtype, ctx.builder.family).get(float(y)) if whole else None
    if special is None:
        return apply(ctx, [x, y], simple("pow"))
    return apply(ctx, [x], special)


def _powers(dtype: str, family: Family) -> dict[float, Meaning]:
    """Exponents with formulas of their own. Steps are rounded to 16 bits, but for f16 on CPUs, where torch computes
    powers in float32."""
    wide = dtype == "f16" and family == "cpu"
    step = (lambda e: e) if wide else rounding(dtype)

    def square(x: Expr) -> Expr:
        return step(call("mul", x, x))

    found: dict[float, Meaning] = {
        2.0: square,
        3.0: lambda x: call("mul", square(x), x),
        1.0: lambda x: x,
        -1.0: _inverse(family),
        -2.0: lambda x: _inverse(family)(square(x)),
    }
    return found if wide else found | {0.5: simple("sqrt"), -0.5: simple("rsqrt")}
