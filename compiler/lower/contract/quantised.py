"""Products of quantised weights: model/operators/quantised.py says what the operators mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...graph.patterns import is_op
from ...ir.buffers import Buffer, Operand
from ...ir.expr import Expr, cast
from ...ir.index import ONE, ZERO, Index
from ...ir.layouts import fills_lines
from ...ir.structured import Quantised
from ...model.operators import quantised  # defines the operators
from ..core.builder import call
from ..core.constants import LinePanels, Panels
from ..core.context import ConstantRef, Context
from ..core.registry import row
from ..core.tensor import Strided, Tensor
from .float8 import NAN, numbers_of
from .quantised_gpu import FLOATS, grouped_product, rows_product
from .quantised_loops import dequantised, float_product, grouped_integer_sums, int_product
from .quantised_product import quantised_product


@row("aten._int_mm.default")
def int_mm(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    node = ctx.operand_node(1)
    transposed = node is not None and is_op(node, "t", "transpose", "permute")
    weight = ctx.constant_at(node.args[0] if node is not None and transposed else node)
    if weight is not None and ctx.builder.family == "cuda":
        return rows_product(ctx, a, weight, transposed, Quantised(8))
    if weight is None or not _takes(ctx):
        return int_product(ctx, a, b)
    columns = weight.tensor.shape[1 if transposed else 0]
    packed = _packed(ctx, weight, LinePanels(8, columns, transposed=not transposed))
    return _product(ctx, a, packed, Quantised(8), b.shape[1], "i32")


@row("mycc.mixed_mm.default")
def mixed_mm(ctx: Context, x: Tensor, w: Tensor) -> Tensor:
    dtype, weight = ctx.result_dtype(), ctx.constant(1)
    if weight is not None and _multiplies(ctx, x):
        return rows_product(ctx, x, weight, True, Quantised(8))
    if weight is not None and dtype == "f32" and _takes(ctx):
        packed = _packed(ctx, weight, LinePanels(8, weight.tensor.shape[1]))
        return _product(ctx, _as(ctx, x, "f32"), packed, Quantised(8), w.shape[0], "f32")
    return float_product(ctx, _as(ctx, x, dtype), _as(ctx, w, dtype))


@row("mycc.float8_mm.default")
def float8_mm(ctx: Context, a: Tensor, w: Tensor, fast: bool = False) -> Tensor:
    dtype, weight = ctx.result_dtype(), ctx.constant(1)
    if weight is not None and dtype == "f32" and _multiplies(ctx, a, (*FLOATS, "u8")):
        return rows_product(ctx, a, weight, True, Quantised(8, float8=True, fast=fast))
    left = numbers_of(ctx, a, dtype)
    if weight is not None and dtype == "f32" and _takes(ctx) and _are_numbers(weight):
        packed = _packed(ctx, weight, LinePanels(8, weight.tensor.shape[1]))
        return _product(ctx, left, packed, Quantised(8, float8=True), w.shape[0], "f32")
    return float_product(ctx, left, numbers_of(ctx, w, dtype))


@row("mycc.grouped_mm.default")
def grouped_mm(
    ctx: Context, x: Tensor, w: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int
) -> Tensor:
    dtype, float8 = ctx.result_dtype(), bits == 8 and w.dtype == "u8"
    if _multiplies(ctx, x) and (found := _grouped_gpu(ctx, 1, x, zeros, bits, group)) is not None:
        return found
    grouped = _grouped(ctx, 1, x.shape[-1], zeros, bits, group) if dtype == "f32" else None
    if grouped is not None:
        return _product(ctx, _as(ctx, x, "f32"), *grouped, w.shape[0], "f32")
    w = numbers_of(ctx, w, dtype) if float8 else w
    weight = dequantised(ctx, w, scales, zeros, bits, group, x.shape[-1], dtype)
    return float_product(ctx, _as(ctx, x, dtype), weight)


@row("mycc.grouped_int_mm.default")
def grouped_int_mm(
    ctx: Context,
    a: Tensor,
    a_zeros: Tensor | None,
    w: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bits: int,
    group: int,
) -> Tensor:
    dtype = ctx.result_dtype()
    out = _grouped_gpu(ctx, 2, a, zeros, bits, group) if dtype == "f32" and ctx.builder.family == "cuda" else None
    grouped = _grouped(ctx, 2, a.shape[-1], zeros, bits, group) if dtype == "f32" else None
    if grouped is not None:
        out = _product(ctx, a, *grouped, w.shape[0], "f32")
    if out is not None:
        if a_zeros is None:
            return out
        return _less_zeros(ctx, out, a_zeros, _column_sums(ctx, bits, group, a.shape[-1]))
    return grouped_integer_sums(ctx, a, a_zeros, w, scales, zeros, bits, group, ctx.result_dtype())


def _as(ctx: Context, t: Tensor, dtype: str) -> Tensor:
    return t if t.dtype == dtype else ctx.builder.map(t.shape, dtype, t.at)


def _takes(ctx: Context) -> bool:
    """Whether this target has kernels that read integer weights."""
    return ctx.builder.family == "cpu"


def _are_numbers(weight: ConstantRef) -> bool:
    """Whether bytes of float8 are all numbers; kernels on CPUs do not look for NaN."""
    return not bool((weight.tensor.view(torch.uint8) & NAN == NAN).any())


def _multiplies(ctx: Context, x: Tensor, types: Sequence[str] = FLOATS) -> bool:
    """Whether a GPU multiplies numbers of x's type, by default floats, with those of quantised weights."""
    return ctx.builder.family == "cuda" and x.dtype in types


def _grouped_gpu(ctx: Context, first: int, a: Tensor, zeros: Tensor | None, bits: int, group: int) -> Tensor | None:
    """The product of a and the weight whose argument is number `first`, by a kernel of a GPU; None: there is none."""
    weight, scales, lows = (ctx.constant(first + i) for i in range(3))
    if weight is None or scales is None or (zeros is not None and lows is None):
        return None
    if lows is not None and lows.tensor.dtype not in quantised.ZEROS:
        return None
    return grouped_product(ctx, a, (weight, scales, lows), bits, group)


def _packed(ctx: Context, ref: ConstantRef, layout: LinePanels | Panels) -> Buffer:
    return ctx.builder.constant(ref.target, ref.tensor, layout)


def _grouped(
    ctx: Context, first: int, columns: Index, zeros: Tensor | None, bits: int, group: int
) -> tuple[Buffer, Quantised] | None:
    """The weight whose argument is number `first`, its scales and zeros in panels; None: no kernel reads them so."""
    refs = [ctx.constant(first + i) for i in range(3)]
    weight, scales, lows = refs
    k = columns.constant
    if weight is None or scales is None or (zeros is not None and lows is None) or not _takes(ctx) or not k:
        return None
    if not fills_lines(group, k, bits) or (lows is not None and lows.tensor.dtype not in quantised.ZEROS):
        return None
    float8 = bits == 8 and weight.tensor.dtype != torch.int8
    if float8 and not _are_numbers(weight):
        return None
    packed = _packed(ctx, weight, LinePanels(bits, k, group))
    low = None if lows is None else _packed(ctx, lows, Panels())
    return packed, Quantised(bits, group, _packed(ctx, scales, Panels()), low, float8=float8)


def _product(ctx: Context, a: Tensor, weight: Buffer, how: Quantised, n: Index, dtype: str) -> Tensor:
    """a [..., k] times a weight of n rows in panels."""
    return quantised_product(ctx, a, Operand(weight, ZERO, ()), True, how, n, dtype)


def _column_sums(ctx: Context, bits: int, group: int, k: Index) -> Tensor:
    """Of each row of a grouped weight, the sum of what it stands for: a constant of its own, [n]."""
    weight, scales, zeros = (ctx.constant(i) for i in (2, 3, 4))
    assert weight is not None
    assert scales is not None
    lows = None if zeros is None else zeros.tensor
    real = quantised.dequantised(weight.tensor, scales.tensor, lows, bits, group, ctx.integer(k), torch.float64)
    known = ctx.builder.derived(f"{weight.target}.sums", real.sum(1).float())
    return Tensor((known.size,), "f32", Strided(known, (ONE,)))


def _less_zeros(ctx: Context, out: Tensor, a_zeros: Tensor, sums: Tensor) -> Tensor:
    """The sums less what the zeros of the rows add: each times the sum of a column of the weight."""

    def value(i: list[Index]) -> Expr:
        added = call("mul", cast(a_zeros.at([*i[:-1], ZERO]), "f32"), sums.at(i[-1:]))
        return call("sub", out.at(i), added)

    return ctx.builder.map(out.shape, "f32", value)
