"""A model of transformers with its cache as one module, and its functions: reading a prompt, taking one token more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from ...runtime.errors import CompileError
from .attention import IMPLEMENTATION, register_attention
from .cache import LayerMemory, Places, call_cache

__all__ = ["Decode", "Prefill", "TextModel"]

_KEYS_AND_VALUES = (DynamicLayer, DynamicSlidingWindowLayer)


class TextModel(nn.Module):
    """A causal language model and the cache of `texts` texts of `length` tokens each.

    whole: attention reads the whole cache and masks what is not filled, so that no size depends on a value.
    """

    def __init__(self, network: Any, length: int, texts: int, whole: bool = False) -> None:
        super().__init__()
        self.network, self.length, self.texts, self.whole = network, length, texts, whole
        register_attention()
        network.set_attn_implementation(IMPLEMENTATION)
        self.sliding = []
        for i, (keys, values, sliding) in enumerate(_layer_shapes(network)):
            self.sliding.append(sliding)
            self.register_buffer(f"keys{i}", keys.new_zeros((texts, keys.shape[1], length, keys.shape[3])))
            self.register_buffer(f"values{i}", values.new_zeros((texts, values.shape[1], length, values.shape[3])))

    def memory(self) -> list[LayerMemory]:
        return [
            LayerMemory(getattr(self, f"keys{i}"), getattr(self, f"values{i}"), sliding)
            for i, sliding in enumerate(self.sliding)
        ]

    def next_logits(self, tokens: Tensor, start: Tensor, rows: Tensor | None) -> Tensor:
        """tokens i64[batch, count], behind the first `start` i64[batch] of each text -> logits f32[batch, vocabulary]
        of what follows them."""
        positions = start[:, None] + torch.arange(tokens.shape[1])
        cache = call_cache(self.memory(), Places(rows, positions, self._end(tokens, start)))
        out = self.network(
            input_ids=tokens, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        return out.logits[:, -1].float()

    def _end(self, tokens: Tensor, start: Tensor) -> Any:
        """How many positions of the cache are filled after the call, of the longest text."""
        if self.whole:
            return self.length
        end = (start.max() + tokens.shape[1]).item()
        torch._check(end >= 1)
        torch._check(end <= self.length)
        return end


def _layer_shapes(network: Any) -> list[tuple[Tensor, Tensor, bool]]:
    """Keys, values, and whether a window slides over them, of each layer after one token.

    Raises:
        CompileError: a layer keeps something else.
    """
    cache: Any = DynamicCache(config=network.config.get_text_config(decoder=True))
    with torch.no_grad():
        network(input_ids=torch.zeros((1, 1), dtype=torch.int64), past_key_values=cache, use_cache=True)
    other = sorted({type(layer).__name__ for layer in cache.layers if type(layer) not in _KEYS_AND_VALUES})
    if other or not cache.layers:
        kinds = ", ".join(other) if other else "no layer of transformers' cache"
        raise CompileError(
            f"{type(network).__name__} keeps more than keys and values from token to token ({kinds}), "
            "which packages for text generation do not hold"
        )
    return [(layer.keys, layer.values, layer.is_sliding) for layer in cache.layers]


class Prefill(nn.Module):
    """Reads a piece of one text, which lies in row `row` of the cache, behind its first `start` tokens."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, row: Tensor | None = None) -> Tensor:
        return self.model.next_logits(tokens, start, row)


class Decode(nn.Module):
    """Takes one token more of the texts in the first rows of the cache, behind the first `start` tokens of each."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor) -> Tensor:
        return self.model.next_logits(tokens, start, None)
