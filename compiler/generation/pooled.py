"""An encoder whose vectors of tokens become one vector of the text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["PooledEncoder", "without_cache"]


def without_cache(network: nn.Module) -> dict[str, Any]:
    """The argument that keeps a network from giving its keys and values, where it has one."""
    return {"use_cache": False} if getattr(network.config, "use_cache", None) is not None else {}


class PooledEncoder(nn.Module):
    """mode: "mean", "first", "last", "max" or "mean_sqrt" of the vectors where the mask is not 0. unit: of length 1."""

    def __init__(self, network: Any, mode: str, unit: bool) -> None:
        super().__init__()
        self.network, self.mode, self.unit = network, mode, unit

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """i64[batch, count] each -> f32[batch, size]"""
        mask = (mask != 0).to(torch.int64)
        out = self.network(input_ids=tokens, attention_mask=mask, **without_cache(self.network))
        pooled = self._pooled(out.last_hidden_state.float(), mask)
        return nn.functional.normalize(pooled, dim=-1) if self.unit else pooled

    def _pooled(self, vectors: Tensor, mask: Tensor) -> Tensor:
        if self.mode == "first":
            return vectors[:, 0]
        if self.mode == "last":
            places = torch.arange(vectors.shape[1])
            last = (places * mask).amax(1)
            return (vectors * (places[None] == last[:, None])[..., None]).sum(1)
        seen = mask[..., None].to(vectors.dtype)
        if self.mode == "max":
            return vectors.masked_fill(seen == 0, -1e9).amax(1)
        count = seen.sum(1).clamp(min=1e-9)
        return (vectors * seen).sum(1) / (count.sqrt() if self.mode == "mean_sqrt" else count)
