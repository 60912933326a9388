"""Products of quantised weights on GPUs: rows of bytes, or planes of 4 bits, that kernels make operands of."""

from __future__ import annotations

import torch

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Acc
from ...ir.index import ONE, ZERO, Index, as_index, of, product
from ...ir.layouts import row_words
from ...ir.nodes import Store
from ...ir.structured import Gemm, Quantised
from ..core.constants import Layout, Planes, Transposed
from ..core.context import ConstantRef, Context
from ..core.tensor import Tensor
from .matmul import dense_rows

#: words of a plane's runs that kernels take, the widest first: a group is whole runs
RUNS = (64, 32, 16)
#: left operands that kernels multiply
FLOATS = ("f32", "f16", "bf16")


def rows_product(ctx: Context, a: Tensor, weight: ConstantRef, turned: bool, how: Quantised) -> Tensor:
    """a [..., k] times a weight of bytes, [n, k], or [k, n] unless `turned`; the caller scales."""
    n, k = weight.tensor.shape if turned else reversed(weight.tensor.shape)
    b = Operand(_constant(ctx, weight, None if turned else Transposed()), ZERO, (ONE, as_index(k)))
    return _product(ctx, a, b, how, as_index(n), "i32" if a.dtype == "i8" else "f32")


def grouped_product(
    ctx: Context, a: Tensor, refs: tuple[ConstantRef, ConstantRef, ConstantRef | None], bits: int, group: int
) -> Tensor | None:
    """a [..., k] times a weight with its scales and zeros; None: no kernel reads it so."""
    weight, scales, zeros = refs
    k = a.shape[-1].constant
    least = RUNS[-1] if a.dtype != "i8" else RUNS[-2]  # what the instructions of tensor cores take of k
    run = next((r for r in RUNS if group % r == 0 or group == k), 0)
    if not k or run < least:
        return None
    n = weight.tensor.shape[0]
    if bits == 4:
        b = Operand(_constant(ctx, weight, Planes(k, run)), ZERO, (ZERO, as_index(row_words(k, run) * 2)))
    else:
        b, run = Operand(_constant(ctx, weight), ZERO, (ONE, as_index(k))), 0
    low = None if zeros is None else _constant(ctx, zeros, Transposed())
    float8 = bits == 8 and weight.tensor.dtype != torch.int8
    how = Quantised(bits, group, _constant(ctx, scales, Transposed()), low, run=run, float8=float8)
    return _product(ctx, a, b, how, as_index(n), "f32")


def _constant(ctx: Context, ref: ConstantRef, layout: Layout | None = None) -> Buffer:
    return ctx.builder.constant(ref.target, ref.tensor, layout)


def _product(ctx: Context, a: Tensor, b: Operand, how: Quantised, n: Index, dtype: str) -> Tensor:
    builder, k = ctx.builder, a.shape[-1]
    rows = dense_rows(ctx, a, (product(a.shape[:-1]), k))
    out = builder.temp((rows.shape[0], n), dtype)
    assert rows.strided is not None
    assert out.strided is not None
    dims = (builder.var(rows.shape[0], "m"), builder.var(n, "n"))
    acc = Acc(builder.fresh("acc"), dtype)
    store = Store(out.strided.buffer, out.place([of(d) for d in dims]), acc)
    left = Operand(rows.strided.buffer, rows.strided.offset, rows.strided.strides)
    builder.add(Gemm(dims, (store,), builder.origin, k, left, b, False, acc, quantised=how))
    return builder.reshape(out, (*a.shape[:-1], n))
