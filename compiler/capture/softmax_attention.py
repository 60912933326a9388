"""Attention whose scores a function changes, in plain operators: what the attention pass recognises as a whole.

s = (q @ k^T) * scale                                   [B, H, M, N], float32 at least
s = where(mask_mod(b, h, m, n), score_mod(s, b, h, m, n), -inf)
y = softmax(s) @ v                                      rows without a key are 0
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..model.operators import own as _own  # noqa: F401  # defines mycc::softmax_values

__all__ = ["Mod", "softmax_attention"]

#: of a score and its indices, or of the indices alone, which broadcast: b [B, 1, 1, 1], h [H, 1, 1], m [M, 1], n [N]
Mod = Callable[..., Tensor]


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Mod | None,
    mask_mod: Mod | None,
    scale: float,
    statistics: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """query [B, H, M, D], key [B or 1, G, N, D], value [B or 1, G, N, E] -> [B, H, M, E]; and where they are read the
    logarithm of the sums and the largest score of each row over log(2), [B, H, M]."""
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    key, value = _repeated(query, key), _repeated(query, value)
    scores = torch.matmul(query.to(working), key.to(working).transpose(-2, -1)) * scale
    batch, heads, rows, columns = scores.shape
    at = (
        torch.arange(batch, device=query.device).view(-1, 1, 1, 1),
        torch.arange(heads, device=query.device).view(-1, 1, 1),
        torch.arange(rows, device=query.device).view(-1, 1),
        torch.arange(columns, device=query.device),
    )
    if score_mod is not None:
        scores = score_mod(scores, *at).to(working)
    if mask_mod is not None:
        scores = torch.where(mask_mod(*at), scores, -math.inf)
    value = value.to(query.dtype)
    if not statistics:
        weights = torch.ops.aten._safe_softmax(scores, -1)
        return torch.matmul(weights.to(query.dtype), value), None, None
    result, sums = torch.ops.mycc.softmax_values(scores, value)
    return result, sums / math.log(2), scores.amax(-1) / math.log(2)


def _repeated(query: Tensor, operand: Tensor) -> Tensor:
    """Keys or values with as many heads as the queries, and as many batches."""
    batch, heads, rows, size = operand.shape
    groups = query.shape[1] // heads
    if groups != 1:
        operand = operand.unsqueeze(2).expand(batch, heads, groups, rows, size).reshape(batch, -1, rows, size)
    return operand.expand(query.shape[0], *operand.shape[1:]) if batch != query.shape[0] else operand
