"""Attention in a training step for GPUs: whole, with its dropout, and so is its gradient.

    y = sdpa(q, k, v, dropout_p=0.1)     ->     _, kept = native_dropout(ones(b, h, m, n), 0.1, True)
                                                y, log, top = trained_attention(q, k, v, None, kept, 0.1, ...)
                                                dq, dk, dv = attention_gradient(dy, q, k, v, y, log, top, ...)

torch itself spells out attention with dropout on a CPU, on whose tensors a step is traced: the scores are written, and
their gradients, several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..machine.gpu_programs import GRADIENTS
from ..model.operators.trained_attention import attention_scale  # its module defines mycc::trained_attention

__all__ = ["whole_attention"]

_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def whole_attention(args: Sequence[Any], kwargs: Mapping[str, Any], like: Any = None) -> Tensor | None:
    """The result of torch's scaled_dot_product_attention on these arguments; None where it has no kernels as a whole:
    it is torch's then. like: a result in whose layout others view it."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given: dict[str, Any] = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}
    given |= {"scale": None, "enable_gqa": False}
    given |= {**dict(zip(names, args, strict=False)), **kwargs}
    q, k, v, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    if not _is_whole(q, k, v, mask, given):
        return None
    dropout, kept = float(given["dropout_p"]), None
    if dropout:
        scores = torch.ones((*q.shape[:3], k.shape[2]), dtype=q.dtype)
        kept = torch.ops.aten.native_dropout.default(scores, dropout, True)[1]
    scale = attention_scale(q.shape[3]) if given["scale"] is None else float(given["scale"])
    out: Tensor = _Attention.apply(q, k, v, mask, kept, dropout, bool(given["is_causal"]), scale)
    return out.contiguous() if isinstance(like, Tensor) and like.is_contiguous() else out


def _is_whole(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, given: Mapping[str, Any]) -> bool:
    if not q.dim() == k.dim() == v.dim() == 4 or not q.dtype == k.dtype == v.dtype or q.dtype not in _TYPES:
        return False
    if mask is not None and (mask.requires_grad or mask.dim() > 4):
        return False
    sizes = (q.shape[3], v.shape[3], q.shape[1], k.shape[1], v.shape[1])
    if not all(isinstance(n, int) for n in sizes) or k.shape[1] != v.shape[1] or not k.shape[1]:
        return False
    alike = q.shape[1] == k.shape[1] or (given["enable_gqa"] and q.shape[1] % k.shape[1] == 0)
    fits = 0 < max(q.shape[3], v.shape[3]) <= GRADIENTS.longest_head and q.shape[3] == k.shape[3]
    return bool(alike and fits and 0 <= given["dropout_p"] < 1)


class _Attention(torch.autograd.Function):
    """mycc::trained_attention, whose gradient is mycc::attention_gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> Tensor:
        out, log, top = torch.ops.mycc.trained_attention(q, k, v, *settings)
        mask, kept, *ctx.settings = settings
        ctx.save_for_backward(q, k, v, out, log, top, mask, kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = torch.ops.mycc.attention_gradient(grad, *ctx.saved_tensors, *ctx.settings)
        return (*found, None, None, None, None, None)
