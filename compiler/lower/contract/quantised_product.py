"""The node of a product with quantised weights, for CPUs and GPUs."""

from __future__ import annotations

from ...ir.buffers import Operand
from ...ir.expr import Acc
from ...ir.index import Index, of, product
from ...ir.nodes import Store
from ...ir.structured import Gemm, Quantised
from ..core.context import Context
from ..core.tensor import Tensor
from .matmul import dense_rows


def quantised_product(
    ctx: Context, a: Tensor, b: Operand, packed: bool, how: Quantised, n: Index, dtype: str
) -> Tensor:
    """a [..., k] times a weight of n rows -> [..., n] in `dtype`, i32 or f32. packed: the weight lies in panels."""
    builder, k = ctx.builder, a.shape[-1]
    rows = dense_rows(ctx, a, (product(a.shape[:-1]), k))
    out = builder.temp((rows.shape[0], n), dtype)
    assert rows.strided is not None
    assert out.strided is not None
    dims = (builder.var(rows.shape[0], "m"), builder.var(n, "n"))
    acc = Acc(builder.fresh("acc"), dtype)
    store = Store(out.strided.buffer, out.place([of(d) for d in dims]), acc)
    left = Operand(rows.strided.buffer, rows.strided.offset, rows.strided.strides)
    builder.add(Gemm(dims, (store,), builder.origin, k, left, b, packed, acc, quantised=how))
    return builder.reshape(out, (*a.shape[:-1], n))
