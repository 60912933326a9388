"""Scaled dot product attention: one node, with the mask as an expression of the score."""

from __future__ import annotations

from typing import Any

from ...graph.decompose.definitions import attention_scale
from ...ir.buffers import Operand
from ...ir.expr import Acc, Expr, cast
from ...ir.index import ONE, Index, exact_div, of
from ...ir.structured import Attention
from ..core.builder import call, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor, squeeze, unsqueeze
from .matmul import HALVES


@row("aten.scaled_dot_product_attention.default")
def attention(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """q [b, h, m, d], k [b, g, n, d], v [b, g, n, e] -> [b, h, m, e], stored as [b, m, h, e]."""
    if dropout_p:
        raise ctx.refuse("attention with dropout; call model.eval() before compiling")
    if not ctx.takes_product(q.dtype) and q.dtype not in HALVES:
        raise ctx.refuse(f"attention of {q.dtype} is not supported on this target")
    lifted = 4 - q.rank
    for _ in range(lifted):
        q, k, v = unsqueeze(q, 0), unsqueeze(k, 0), unsqueeze(v, 0)
    batch = q.shape[:-3]
    if len(batch) > 1:
        mask = _mask_flat(attn_mask, q)
        q, k, v = _flat_batch(ctx, q), _flat_batch(ctx, k), _flat_batch(ctx, v)
        out = attention_4d(ctx, q, k, v, mask, is_causal, scale)
        return ctx.builder.reshape(out, ctx.result_shape())
    out = attention_4d(ctx, q, k, v, attn_mask, is_causal, scale)
    for _ in range(lifted):
        out = squeeze(out, 0)
    return out


def _flat_batch(ctx: Context, t: Tensor) -> Tensor:
    from ...ir.index import product

    return ctx.builder.reshape(t, (product(t.shape[:-3]), *t.shape[-3:]))


def _mask_flat(mask: Tensor | None, q: Tensor) -> Tensor | None:
    if mask is None or mask.rank <= 2:
        return mask
    from ..core.tensor import split_index

    lead = q.shape[:-3]

    def make(i: Any) -> Expr:
        assert mask is not None
        return mask.at_broadcast([*split_index(i[0], lead), *i[1:]])

    from ...ir.index import product

    return Tensor((product(lead), *q.shape[-3:-1], mask.shape[-1]), mask.dtype, make=make)


def attention_4d(
    ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> Tensor:
    builder = ctx.builder
    q, k, v = (_dense_rows(ctx, t) for t in (q, k, v))
    b, h, m, d = q.shape
    groups, keys, value_size = k.shape[1], k.shape[2], v.shape[3]
    if exact_div(h, groups) is None:
        raise ctx.refuse("the number of query heads is not a multiple of the number of key heads")
    factor = scale if scale is not None else attention_scale(ctx.integer(d))
    out = builder.temp((b, h, m, value_size), q.dtype, order=(0, 2, 1, 3))
    assert out.strided is not None
    dims = tuple(builder.var(e, name) for e, name in zip((b, h, m, value_size), ("b", "h", "m", "d"), strict=True))
    key = builder.var(keys, "key")
    score = _score(mask, [of(dims[0]), of(dims[1]), of(dims[2]), of(key)])
    node = Attention(
        dims,
        (),
        builder.origin,
        _operand(q),
        _operand(k),
        _operand(v),
        Operand(out.strided.buffer, out.strided.offset, out.strided.strides[:3]),
        groups,
        keys,
        d,
        float(factor),
        causal,
        key,
        score,
    )
    builder.add(node)
    return out


def _score(mask: Tensor | None, at: list[Index]) -> Expr | None:
    if mask is None:
        return None
    acc = Acc("score", "f32")
    element = mask.at_broadcast(at)
    if mask.dtype == "bool":
        return where(element, acc, number(float("-inf"), "f32"))
    return call("add", acc, cast(element, acc.dtype))


def _dense_rows(ctx: Context, t: Tensor) -> Tensor:
    if t.strided is not None and (t.strided.strides[3] == ONE or t.shape[3] == ONE):
        return t
    return ctx.builder.map(t.shape, t.dtype, t.at)


def _operand(t: Tensor) -> Operand:
    assert t.strided is not None
    return Operand(t.strided.buffer, t.strided.offset, t.strided.strides[:3])
