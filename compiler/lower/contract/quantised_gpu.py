"""Products of quantised weights on GPUs: rows of bytes, or planes of 4 bits, that kernels make operands of."""

from __future__ import annotations

import torch

from ...ir.buffers import Buffer, Operand
from ...ir.index import ONE, ZERO, as_index
from ...ir.layouts import row_words, run_of
from ...ir.structured import Quantised
from ..core.constants import Layout, Planes, Transposed
from ..core.context import ConstantRef, Context
from ..core.tensor import Tensor
from .quantised_product import quantised_product

#: left operands that kernels multiply
FLOATS = ("f32", "f16", "bf16")


def rows_product(ctx: Context, a: Tensor, weight: ConstantRef, transposed: bool, how: Quantised) -> Tensor:
    """a [..., k] times a weight of bytes, [n, k], or [k, n] unless `transposed`; the caller scales."""
    n, k = weight.tensor.shape if transposed else reversed(weight.tensor.shape)
    b = Operand(_constant(ctx, weight, None if transposed else Transposed()), ZERO, (ONE, as_index(k)))
    return quantised_product(ctx, a, b, False, how, as_index(n), "i32" if a.dtype == "i8" else "f32")


def grouped_product(
    ctx: Context, a: Tensor, refs: tuple[ConstantRef, ConstantRef, ConstantRef | None], bits: int, group: int
) -> Tensor | None:
    """a [..., k] times a weight with its scales and zeros; None: no kernel reads it so."""
    weight, scales, zeros = refs
    k = a.shape[-1].constant
    run = run_of(group, k, a.dtype == "i8") if k else 0
    if not k or not run:
        return None
    n = weight.tensor.shape[0]
    if bits == 4:
        b = Operand(_constant(ctx, weight, Planes(k, run)), ZERO, (ZERO, as_index(row_words(k, run) * 2)))
    else:
        b, run = Operand(_constant(ctx, weight), ZERO, (ONE, as_index(k))), 0
    low = None if zeros is None else _constant(ctx, zeros, Transposed())
    float8 = bits == 8 and weight.tensor.dtype != torch.int8
    how = Quantised(bits, group, _constant(ctx, scales, Transposed()), low, run=run, float8=float8)
    return quantised_product(ctx, a, b, False, how, as_index(n), "f32")


def _constant(ctx: Context, ref: ConstantRef, layout: Layout | None = None) -> Buffer:
    return ctx.builder.constant(ref.target, ref.tensor, layout)
