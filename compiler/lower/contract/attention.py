"""Scaled dot product attention: one node, with the mask as an expression of the score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...ir.buffers import Operand
from ...ir.expr import Acc, Expr, cast
from ...ir.index import ONE, ZERO, Index, Var, exact_div, of
from ...ir.structured import Attention, AttentionGradient
from ...model.operators.trained_attention import attention_scale
from ..core.builder import call, number, where
from ..core.context import Context
from ..core.registry import row
from ..core.tensor import Tensor, squeeze, unsqueeze
from ..pointwise.create import filled
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


@row("mycc.attention.default")
def attention_with_sinks(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    sinks: Tensor | None,
    scale: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """See model/operators/own.py."""
    if not ctx.takes_product(q.dtype) and q.dtype not in HALVES:
        raise ctx.refuse(f"attention of {q.dtype} is not supported on this target")
    log = ctx.builder.temp(q.shape[:3], "f32")
    sink = None if sinks is None else _one_for_each_row(ctx, sinks, q)
    return attention_4d(ctx, q, k, v, mask, False, scale, log, sink, softcap, -math.inf), log


def _one_for_each_row(ctx: Context, sinks: Tensor, q: Tensor) -> Operand:
    """An operand with strides (b, h, m), in float32: one number for each head where the others repeat it."""
    shape = [ONE] * (4 - sinks.rank) + list(sinks.shape)
    own = tuple(shape[:3])
    alone = ctx.builder.map(own, "f32", lambda i: cast(sinks.at_broadcast([*i, ZERO]), "f32"))
    assert alone.strided is not None
    strides = (ZERO if size == ONE else s for size, s in zip(own, alone.strided.strides, strict=True))
    return Operand(alone.strided.buffer, alone.strided.offset, tuple(strides))


@row("mycc.trained_attention.default")
def trained_attention(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    kept: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """See model/operators/trained_attention.py."""
    _check_training(ctx, q, kept)
    log = ctx.builder.temp(q.shape[:3], "f32")
    top = ctx.builder.temp(q.shape[:3], "f32") if _has_top(ctx, mask) else None
    out = attention_4d(ctx, q, k, v, mask, causal, scale, log, top=top, dropout=_Dropout.of(kept, dropout))
    return out, log, filled(q.shape[:3], "f32", 0.0) if top is None else top


def _has_top(ctx: Context, mask: Tensor | None) -> bool:
    """Whether the largest score has a place of its own: a mask that is added may be a number without a logarithm."""
    return mask is not None and mask.dtype != "bool" and ctx.builder.family != "cpu"


@row("mycc.attention_gradient.default")
def own_attention_gradient(
    ctx: Context,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    top: Tensor | None,
    mask: Tensor | None,
    kept: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float,
) -> tuple[Tensor, ...]:
    """See model/operators/trained_attention.py."""
    _check_training(ctx, q, kept)
    top = top if _has_top(ctx, mask) else None
    return _gradient(ctx, grad, q, k, v, out, logsumexp, mask, causal, scale, top, _Dropout.of(kept, dropout))


def _check_training(ctx: Context, q: Tensor, kept: Tensor | None) -> None:
    if not ctx.takes_product(q.dtype) and q.dtype not in HALVES:
        raise ctx.refuse(f"attention of {q.dtype} is not supported on this target")
    if kept is not None and ctx.builder.family == "cpu":
        raise ctx.refuse("attention that drops weights has kernels for GPUs alone")


@row("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention_with_logsumexp(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The result as above, and of each query the logarithm of its sum of exponentials [b, h, m] in float32."""
    log = ctx.builder.temp(q.shape[:3], "f32")
    return attention_4d(ctx, q, k, v, attn_mask, is_causal, scale, log), log


@row("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_gradient(
    ctx: Context,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    return _gradient(ctx, grad, q, k, v, out, logsumexp, attn_mask, is_causal, scale)


def _gradient(
    ctx: Context,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    top: Tensor | None = None,
    dropout: _Dropout | None = None,
) -> tuple[Tensor, ...]:
    """The gradients of q, k and v, stored as [b, m, h, d]; the scores are made again, by blocks."""
    builder = ctx.builder
    inner = _inner_products(ctx, grad, out)
    q, k, v, grad = (_dense_rows(ctx, t) for t in (q, k, v, grad))
    logsumexp = _in_memory(ctx, logsumexp)
    sizes = _Sizes.of(ctx, q, k, v, mask, scale, dropout=dropout)
    of_q, of_k, of_v = (builder.temp(t.shape, t.dtype, order=(0, 2, 1, 3)) for t in (q, k, v))
    node = AttentionGradient(
        sizes.dims, (), builder.origin, _operand(q), _operand(k), _operand(v), _operand(grad), _operand(logsumexp),
        _operand(inner), _operand(of_q), _operand(of_k), _operand(of_v), sizes.groups, sizes.keys, sizes.head_size,
        sizes.scale, causal, sizes.key, sizes.score, sizes.dropout,
        None if top is None else _operand(_in_memory(ctx, top)),
    )  # fmt: skip
    builder.add(node)
    return of_q, of_k, of_v


def _in_memory(ctx: Context, rows: Tensor) -> Tensor:
    """Numbers of rows as an operand reads them, in float32."""
    if rows.strided is not None and rows.dtype == "f32":
        return rows
    return ctx.builder.map(rows.shape, "f32", lambda i: cast(rows.at(i), "f32"))


def _inner_products(ctx: Context, grad: Tensor, out: Tensor) -> Tensor:
    """Of each row of a result [b, h, m, d] the sum of its elements times their gradients, in float32."""

    def term(i: list[Index]) -> Expr:
        return call("mul", cast(grad.at(i), "f32"), cast(out.at(i), "f32"))

    return ctx.builder.reduce(grad.shape, [3], [("sum", term)], [("f32", lambda sums: sums[0])])[0]


@dataclass(frozen=True)
class _Dropout:
    """Which weights are kept, and what they are multiplied with."""

    kept: Tensor
    factor: float

    @classmethod
    def of(cls, kept: Tensor | None, probability: float) -> _Dropout | None:
        return None if kept is None else cls(kept, 1.0 / (1.0 - probability))

    def value(self, at: list[Index]) -> Expr:
        return where(self.kept.at(at), number(self.factor, "f32"), number(0.0, "f32"))


@dataclass(frozen=True)
class _Sizes:
    """What attention and its gradient have in common; score: how the mask changes one; dropout: of a weight."""

    dims: tuple[Var, ...]
    groups: Index
    keys: Index
    head_size: Index
    scale: float
    key: Var
    score: Expr | None
    dropout: Expr | None

    @classmethod
    def of(
        cls,
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        scale: float | None,
        softcap: float | None = None,
        dropout: _Dropout | None = None,
    ) -> _Sizes:
        builder = ctx.builder
        b, h, m, d = q.shape
        groups, keys, value_size = k.shape[1], k.shape[2], v.shape[3]
        shared = exact_div(h, groups)
        if shared is None:
            raise ctx.refuse("the number of query heads is not a multiple of the number of key heads")
        if shared.constant is None and builder.family == "cuda":
            raise ctx.refuse("how many query heads share a key head has to be known on GPUs")
        factor = scale if scale is not None else attention_scale(ctx.integer(d))
        dims = tuple(builder.var(e, name) for e, name in zip((b, h, m, value_size), ("b", "h", "m", "d"), strict=True))
        key = builder.var(keys, "key")
        at = [of(dims[0]), of(dims[1]), of(dims[2]), of(key)]
        kept = None if dropout is None else dropout.value(at)
        return cls(dims, groups, keys, d, float(factor), key, _score(mask, softcap, at), kept)


def attention_4d(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    logsumexp: Tensor | None = None,
    sink: Operand | None = None,
    softcap: float | None = None,
    empty: float = 0.0,
    top: Tensor | None = None,
    dropout: _Dropout | None = None,
) -> Tensor:
    """logsumexp: where the logarithms of the sums of exponentials are stored, if at all. sink, empty, top: of the
    node."""
    builder = ctx.builder
    q, k, v = (_dense_rows(ctx, t) for t in (q, k, v))
    out = builder.temp((*q.shape[:3], v.shape[3]), q.dtype, order=(0, 2, 1, 3))
    sizes = _Sizes.of(ctx, q, k, v, mask, scale, softcap, dropout)
    node = Attention(
        sizes.dims, (), builder.origin, _operand(q), _operand(k), _operand(v), _operand(out),
        sizes.groups, sizes.keys, sizes.head_size, sizes.scale, causal, sizes.key, sizes.score,
        logsumexp=None if logsumexp is None else _operand(logsumexp), sink=sink, empty=empty,
        top=None if top is None else _operand(top), dropout=sizes.dropout,
    )  # fmt: skip
    builder.add(node)
    return out


def _score(mask: Tensor | None, softcap: float | None, at: list[Index]) -> Expr | None:
    acc: Expr = Acc("score", "f32")
    if softcap is not None:
        cap = number(softcap, "f32")
        acc = call("mul", call("tanh", call("div", acc, cap)), cap)
    if mask is None:
        return None if softcap is None else acc
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
