"""Networks of transformers with the fields of their results by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .pooled import without_cache

__all__ = ["ReadImages", "ReadTexts"]


class ReadTexts(nn.Module):
    """i64[batch, count] each -> the fields `results` of what the network gives."""

    def __init__(self, network: Any, results: Sequence[str]) -> None:
        super().__init__()
        self.network, self.results = network, tuple(results)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        given: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            given["token_type_ids"] = token_type_ids
        out = self.network(**given, **without_cache(self.network))
        return {name: out[name] for name in self.results}


class ReadImages(nn.Module):
    """f32[batch, channels, height, width], normalised -> the fields `results` of what the network gives."""

    def __init__(self, network: Any, results: Sequence[str]) -> None:
        super().__init__()
        self.network, self.results = network, tuple(results)

    def forward(self, pixel_values: Tensor) -> dict[str, Tensor]:
        out = self.network(pixel_values=pixel_values.to(self.network.dtype))
        return {name: out[name] for name in self.results}
