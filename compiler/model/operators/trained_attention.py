"""Attention in a training step: with what its gradient reads, and the gradient, neither of which stores the scores.

p = softmax(scale * q k^T + mask),  out = (p * dropout) v

A mask that is added may hide a key by a large number: of a row of nothing else no float32 holds the logarithm of the
sum of exponentials. The largest score has a place of its own then.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .own import own_operator, working

__all__ = ["attention_gradient", "attention_scale", "score_gradients", "trained_attention"]

_OPERANDS = "Tensor? mask, Tensor? kept, float dropout, bool causal, float scale"


@own_operator(
    f"trained_attention(Tensor q, Tensor k, Tensor v, {_OPERANDS}) -> (Tensor, Tensor, Tensor)",
    lambda q, k, v, *_: (_by_rows(q.new_empty([*q.shape[:3], v.shape[3]])), *(_of_rows(q) for _ in range(2))),
)
def trained_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    kept: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, the logarithms of the sums of exponentials, and what is to be added to these.

    Args:
        q, k, v: [batch, heads, queries, size], [batch, key heads, keys, size], [batch, key heads, keys, value size].
        mask: of bools, True where a key counts, or added; as the scores [batch, heads, queries, keys], or broadcast.
        kept: of the shape of the scores; a weight is 0 where it is False, and else divided by 1 - dropout.
        causal: a query sees no key behind its own place.

    Returns: [batch, heads, queries, value size], where the heads of a row lie side by side in memory, and twice [batch,
        heads, queries] of float32 at least. The last is the largest score where the mask is added, else 0. Of a row
        that sees no key all are 0.
    """
    scores = _scores(q, k, mask, causal, scale)
    unseen = scores.amax(-1) == float("-inf")
    added = mask is not None and mask.dtype != torch.bool
    top = torch.where(unseen, 0.0, scores.amax(-1)) if added else torch.zeros_like(scores[..., 0])
    logsumexp = torch.where(unseen, 0.0, torch.logsumexp(scores - top.unsqueeze(-1), -1))
    weights = _dropped(_weights(scores), kept, dropout)
    return _by_rows(torch.matmul(weights, _for_each_query(q, v).to(weights.dtype)).to(q.dtype)), logsumexp, top


@own_operator(
    "attention_gradient(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor logsumexp, Tensor? top, "
    f"{_OPERANDS}) -> (Tensor, Tensor, Tensor)",
    lambda grad, q, k, v, *_: tuple(t.new_empty(t.shape) for t in (q, k, v)),
)
def attention_gradient(
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
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, from that of the result; the other arguments are those of the attention. top: None
    where the logarithms are whole."""
    weights, of_scores = score_gradients(grad, q, k, v, mask, kept, dropout, causal, scale)
    of, groups = weights.dtype, k.shape[1]
    of_scores = of_scores * scale
    of_q, of_k = torch.matmul(of_scores, _for_each_query(q, k).to(of)), torch.matmul(of_scores.mT, q.to(of))
    of_v = torch.matmul(_dropped(weights, kept, dropout).mT, grad.to(of))
    return of_q.to(q.dtype), _of_shared(of_k, groups).to(k.dtype), _of_shared(of_v, groups).to(v.dtype)


def score_gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | None, dropout: float,
    causal: bool, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The weights, and the gradients of the scores behind their mask."""
    weights = _weights(_scores(q, k, mask, causal, scale))
    of_weights = torch.matmul(grad.to(weights.dtype), _for_each_query(q, v).to(weights.dtype).mT)
    of_weights = _dropped(of_weights, kept, dropout)
    return weights, weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True))


def attention_scale(head_size: int) -> float:
    """What attention multiplies its scores with unless it is told: 1 / sqrt(head_size). Of no elements all are 0."""
    return 1.0 / math.sqrt(max(head_size, 1))


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """q k^T * scale + mask, -inf where a key is not seen."""
    of = working(q)
    scores = torch.matmul(q.to(of), _for_each_query(q, k).to(of).mT) * scale
    if causal:
        rows, keys = (torch.arange(n, device=q.device) for n in scores.shape[-2:])
        scores = torch.where(keys <= rows.unsqueeze(1), scores, float("-inf"))
    if mask is None:
        return scores
    return torch.where(mask, scores, float("-inf")) if mask.dtype == torch.bool else scores + mask.to(of)


def _weights(scores: Tensor) -> Tensor:
    """The softmax of the scores, 0 in rows that see no key."""
    unseen = scores.amax(-1, keepdim=True) == float("-inf")
    return torch.where(unseen, 0.0, torch.softmax(scores, -1))


def _by_rows(out: Tensor) -> Tensor:
    """In the layout that torch's own fused attention gives."""
    return out.transpose(1, 2).contiguous().transpose(1, 2)


def _of_rows(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[:3], dtype=working(q))


def _dropped(weights: Tensor, kept: Tensor | None, dropout: float) -> Tensor:
    return weights if kept is None else weights * (kept.to(weights.dtype) / (1.0 - dropout))


def _for_each_query(q: Tensor, keys: Tensor) -> Tensor:
    """Keys or values of as many heads as the queries have: several heads of queries share one of theirs."""
    return keys if q.shape[1] == keys.shape[1] else keys.repeat_interleave(q.shape[1] // keys.shape[1], 1)


def _of_shared(gradient: Tensor, heads: int) -> Tensor:
    """The gradient of keys or values that several heads of queries share."""
    return gradient if gradient.shape[1] == heads else gradient.unflatten(1, (heads, -1)).sum(2)
