"""A model of transformers with its cache as one module, and its functions: reading a prompt, taking one token more."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from ...runtime.errors import CompileError
from .attention import IMPLEMENTATION, register_attention
from .cache import BLOCK, AttentionMemory, Memory, Places, RecurrentMemory, call_cache

__all__ = ["Decode", "Prefill", "TextModel", "Verify"]

_KINDS = (DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer)


class TextModel(nn.Module):
    """A causal language model and the cache of `texts` texts of `length` tokens each.

    blocks: of the cache, which texts share; 0: it has a row for each text.
    whole: attention reads the whole cache and masks what is not filled, so that no size depends on a value.
    """

    def __init__(self, network: Any, length: int, texts: int, whole: bool = False, blocks: int = 0) -> None:
        super().__init__()
        self.network, self.length, self.texts, self.whole, self.blocks = network, length, texts, whole, blocks
        register_attention()
        network.set_attn_implementation(IMPLEMENTATION)
        layers = _layers_after_a_token(network)
        self.recurrent = any(isinstance(layer, LinearAttentionLayer) for layer in layers)
        if self.recurrent and texts > 1:
            raise CompileError(
                f"{type(network).__name__} keeps states of recurrences, which a package holds for one text at a time",
                hint="Leave --max-batch at 1.",
            )
        self._memory = [self._keep(i, layer) for i, layer in enumerate(layers)]

    def _keep(self, i: int, layer: Any) -> Callable[[], Memory]:
        """Makes the buffers of a layer's cache; what gives them, as they are when it is called."""

        def named(name: str, value: Tensor) -> str:
            self.register_buffer(name, value)
            return name

        if isinstance(layer, LinearAttentionLayer):
            states = [
                {n: named(f"{kind}{i}_{n}", torch.zeros_like(state)) for n, state in found.items() if state is not None}
                for kind, found in (("convolution", layer.conv_states), ("recurrence", layer.recurrent_states))
            ]
            return lambda: RecurrentMemory(*({n: getattr(self, name) for n, name in row.items()} for row in states))
        count, rows = (self.blocks, BLOCK) if self.blocks else (self.texts, self.length)
        kept = [
            named(f"{kind}{i}", value.new_zeros((count, value.shape[1], rows, value.shape[3])))
            for kind, value in (("keys", layer.keys), ("values", layer.values))
        ]
        return lambda: AttentionMemory(getattr(self, kept[0]), getattr(self, kept[1]), layer.is_sliding)

    def next_logits(self, tokens: Tensor, start: Tensor, rows: Tensor | None, table: Tensor | None = None) -> Tensor:
        """tokens i64[batch, count], behind the first `start` i64[batch] of each text -> logits f32[batch, vocabulary]
        of what follows them. table: i64[batch, blocks of a text], of a cache in blocks."""
        return self._logits(tokens, start, rows, 1, table)[:, -1]

    def all_logits(self, tokens: Tensor, start: Tensor, rows: Tensor | None) -> Tensor:
        """So, of what follows each of them: f32[batch, count, vocabulary]"""
        return self._logits(tokens, start, rows, 0)

    def _logits(
        self, tokens: Tensor, start: Tensor, rows: Tensor | None, kept: int, table: Tensor | None = None
    ) -> Tensor:
        positions = start[:, None] + torch.arange(tokens.shape[1])
        places = Places(rows, start, positions, self._end(tokens, start), table)
        cache = call_cache([memory() for memory in self._memory], places)
        arguments = {"position_ids": positions, "logits_to_keep": kept, cache_argument(self.network): cache}
        known = inspect.signature(self.network.forward).parameters
        out = self.network(
            input_ids=tokens, use_cache=True, **{name: value for name, value in arguments.items() if name in known}
        )
        found = out.logits.float()
        assert isinstance(found, Tensor)
        return found

    def copy_block(self, source: Tensor, target: Tensor) -> Tensor:
        """Has the blocks `target` i64[count] of every layer hold what the blocks `source` do."""
        for memory in self._memory:
            layer = memory()
            assert isinstance(layer, AttentionMemory)
            for kept in (layer.keys, layer.values):
                kept[target] = kept[source]
        return target + 0

    def _end(self, tokens: Tensor, start: Tensor) -> Any:
        """How many positions of the cache are filled after the call, of the longest text."""
        if self.whole:
            return self.length
        end = (start.max() + tokens.shape[1]).item()
        torch._check(end >= 1)
        torch._check(end <= self.length)
        return end


def _layers_after_a_token(network: Any) -> list[Any]:
    """The layers of the network's own cache after one token: they show what is kept, and its shapes.

    Raises:
        CompileError: a layer keeps something else than keys and values or states of a recurrence.
    """
    cache: Any = DynamicCache(config=network.config.get_text_config(decoder=True))
    with torch.no_grad():
        network(input_ids=torch.zeros((1, 1), dtype=torch.int64), use_cache=True, **{cache_argument(network): cache})
    other = sorted({type(layer).__name__ for layer in cache.layers if type(layer) not in _KINDS})
    if other or not cache.layers:
        kinds = ", ".join(other) if other else "no layer of transformers' cache"
        raise CompileError(
            f"{type(network).__name__} keeps more than keys and values from token to token ({kinds}), "
            "which packages for text generation do not hold"
        )
    return list(cache.layers)


def cache_argument(network: Any) -> str:
    """The name of the argument of a network that takes its cache."""
    return "cache_params" if "cache_params" in inspect.signature(network.forward).parameters else "past_key_values"


class Prefill(nn.Module):
    """Reads a piece of one text, which lies in row `row` of the cache, behind its first `start` tokens."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, row: Tensor | None = None) -> Tensor:
        return self.model.next_logits(tokens, start, row)


class Verify(nn.Module):
    """As Prefill, with the logits behind each of the tokens: f32[count, vocabulary]."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, row: Tensor | None = None) -> Tensor:
        return self.model.all_logits(tokens, start, row)[0]


class Decode(nn.Module):
    """Takes one token more of the texts in the first rows of the cache, behind the first `start` tokens of each."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor) -> Tensor:
        return self.model.next_logits(tokens, start, None)
