"""A model of transformers with its cache as one module, and its functions: reading a prompt, taking one token more."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionLayer,
)

from ...runtime.errors import CompileError
from .attention import IMPLEMENTATION, masks_of_calls, queries_scaled, register_attention
from .cache import (
    BLOCK,
    AttentionMemory,
    DummyLayer,
    HybridMemory,
    Memory,
    Places,
    RecurrentMemory,
    Tiles,
    call_cache,
    keep_states,
)

__all__ = ["Decode", "Prefill", "TextModel", "Verify", "cache_error", "reads_pieces"]

#: dtypes of a cache
_KEPT: dict[str | None, torch.dtype] = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "int8": torch.int8,
}  # fmt: skip
_KINDS = (
    DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionAndFullAttentionLayer, LinearAttentionLayer, DummyLayer,
)  # fmt: skip


class TextModel(nn.Module):
    """A causal language model and the cache of `texts` texts of `length` tokens each.

    blocks: of the cache, which texts share; 0: it has a row for each text, as models with recurrences always have.
    chunk: tokens of a call at most. Layers whose queries see a window keep so many positions and the window's, where
        each text has a row; 0: all.
    kept: the dtype of keys and values, "bf16", "f16", "f32" or "int8"; None: the network's.
    whole: attention reads the whole cache and masks what is not filled, so that no size depends on a value.
    """

    def __init__(
        self,
        network: Any,
        length: int,
        texts: int,
        whole: bool = False,
        blocks: int = 0,
        chunk: int = 0,
        kept: str | None = None,
    ) -> None:
        super().__init__()
        self.network, self.length, self.texts, self.whole = network, length, texts, whole
        register_attention()
        network.set_attn_implementation(IMPLEMENTATION)
        layers = _layers_after_a_token(network)
        self.recurrent = any(isinstance(layer, LinearAttentionLayer) for layer in layers)
        self.blocks = 0 if self.recurrent else blocks
        self.chunk, self.kept = 0 if self.blocks else chunk, kept
        self.slots = max((slots for layer in layers if (slots := self._slots(layer)) is not None), default=length)
        self._memory = [self._keep(i, layer) for i, layer in enumerate(layers)]

    def _slots(self, layer: Any) -> int | None:
        """Of a layer with a window: the slots that its ring needs, so that a call of `chunk` tokens overwrites none
        that one of them sees; None where a text has no more positions."""
        window = getattr(layer, "sliding_window", None) if getattr(layer, "is_sliding", False) else None
        slots = self.length if not window or not self.chunk else window + self.chunk - 1
        return slots if slots < self.length else None

    def _keep(self, i: int, layer: Any) -> Callable[[], Memory]:
        """Makes the buffers of a layer's cache; what gives them, as they are when it is called."""

        def named(name: str, value: Tensor) -> str:
            self.register_buffer(name, value)
            return name

        if type(layer) is DummyLayer:
            return lambda: None
        if not isinstance(layer, LinearAttentionLayer):
            return self._keep_attention(layer, named, i)
        recurrent = self._keep_states(layer, named, i)
        if not isinstance(layer, LinearAttentionAndFullAttentionLayer):
            return recurrent
        attention = self._keep_attention(layer, named, i)
        return lambda: HybridMemory(attention(), recurrent())

    def _keep_states(self, layer: Any, named: Callable[[str, Tensor], str], i: int) -> Callable[[], RecurrentMemory]:
        states = [
            {
                n: named(f"{kind}{i}_{n}", state.new_zeros((self.texts, *state.shape[1:])))
                for n, state in found.items()
                if state is not None
            }
            for kind, found in (("convolution", layer.conv_states), ("recurrence", layer.recurrent_states))
        ]
        return lambda: RecurrentMemory(*({n: getattr(self, name) for n, name in row.items()} for row in states))

    def _keep_attention(self, layer: Any, named: Callable[[str, Tensor], str], i: int) -> Callable[[], AttentionMemory]:
        ring = self._slots(layer) is not None
        count, slots = (self.blocks, BLOCK) if self.blocks else (self.texts, self.slots if ring else self.length)
        kept, scales = [], []
        for kind, value in (("keys", layer.keys), ("values", layer.values)):
            shape = (count, value.shape[1], slots, value.shape[3])
            kept.append(named(f"{kind}{i}", torch.zeros(shape, dtype=_KEPT.get(self.kept, value.dtype))))
            if self.kept == "int8":
                scales.append(named(f"{kind}_scales{i}", torch.zeros((*shape[:3], 1))))
        sliding = layer.is_sliding

        def memory() -> AttentionMemory:
            found = tuple(getattr(self, name) for name in scales)
            pair = (found[0], found[1]) if found else None
            return AttentionMemory(getattr(self, kept[0]), getattr(self, kept[1]), sliding, ring, pair)

        return memory

    def next_logits(self, tokens: Tensor, start: Tensor, rows: Tensor | None, table: Tensor | None = None) -> Tensor:
        """tokens i64[batch, count], behind the first `start` i64[batch] of each text -> logits f32[batch, vocabulary]
        of what follows them. table: i64[batch, blocks of a text], of a cache in blocks."""
        return self._logits(tokens, start, rows, 1, table)[:, -1]

    def all_logits(self, tokens: Tensor, start: Tensor, rows: Tensor | None) -> Tensor:
        """So, of what follows each of them: f32[batch, count, vocabulary]"""
        return self._logits(tokens, start, rows, 0)

    def packed_logits(self, tokens: Tensor, tiles: Tiles, wanted: Tensor) -> Tensor:
        """tokens i64[1, count] of several texts -> logits f32[wanted, vocabulary] behind the tokens `wanted`."""
        positions = tiles.token_positions
        end = self.length if self.whole else _bounded(positions.max() + 1, self.length)
        return self._call(tokens, Places(None, positions[:, 0], positions, end, tiles.table, None, tiles), wanted)[0]

    def _logits(
        self, tokens: Tensor, start: Tensor, rows: Tensor | None, kept: int, table: Tensor | None = None
    ) -> Tensor:
        return self._call(tokens, self.places(tokens, start, rows, table), kept)

    def _call(self, tokens: Tensor, places: Places, kept: int | Tensor) -> Tensor:
        """kept: of how many of the last tokens logits are wanted at least, 0: of all; or of which tokens."""
        cache = call_cache([memory() for memory in self._memory], places)
        arguments = {"position_ids": places.positions, "logits_to_keep": kept, cache_argument(self.network): cache}
        known = inspect.signature(self.network.forward).parameters
        with masks_of_calls(), queries_scaled(self.network, places.positions):
            out = self.network(
                input_ids=tokens, use_cache=True, **{name: value for name, value in arguments.items() if name in known}
            )
        keep_states(cache)
        found = out.logits.float()
        assert isinstance(found, Tensor)
        return found if isinstance(kept, int) or "logits_to_keep" in known else found[:, kept]

    def copy_block(self, source: Tensor, target: Tensor) -> Tensor:
        """Has the blocks `target` i64[count] of every layer hold what the blocks `source` do."""
        for memory in self._memory:
            layer = memory()
            assert isinstance(layer, AttentionMemory)
            for kept in (layer.keys, layer.values, *(layer.scales or ())):
                kept[target] = kept[source]
        return target + 0

    def places(self, tokens: Tensor, start: Tensor, rows: Tensor | None, table: Tensor | None = None) -> Places:
        """Where the tokens of a call lie, and how many positions are filled after it, of the longest text."""
        positions = start[:, None] + torch.arange(tokens.shape[1])
        ring = self.slots < self.length
        if self.whole:
            return Places(rows, start, positions, self.length, table, self.slots if ring else None)
        filled = start.max() + tokens.shape[1]
        ring_end = _bounded(filled.clamp(max=self.slots), self.slots) if ring else None
        return Places(rows, start, positions, _bounded(filled, self.length), table, ring_end)


def cache_error(network: Any, kept: str, tokens: Tensor) -> float:
    """By how much logits of a text differ with keys and values of a dtype, relative to the largest; tokens: i64[1,
    count], the second half of which is read from the cache of the first."""
    found, half = [], tokens.shape[1] // 2
    for dtype in (None, kept):
        model, zero = TextModel(network, tokens.shape[1], 1, True, kept=dtype), torch.zeros(1, dtype=torch.int64)
        with torch.no_grad():
            model.next_logits(tokens[:, :half], zero, None)
            found.append(model.all_logits(tokens[:, half:], zero + half, None))
    return float((found[1] - found[0]).norm() / found[0].norm())


def reads_pieces(network: Any) -> bool:
    """Whether a call of several tokens goes on from the states that an earlier one left: Mamba and Jamba of
    transformers go on by single tokens only."""
    model, tokens = (
        TextModel(network, 8, 1, True),
        torch.arange(6)[None] % network.get_input_embeddings().num_embeddings,
    )
    with torch.no_grad():
        for i in range(6):
            single = model.next_logits(tokens[:, i : i + 1], torch.tensor([i]), None)
        for i in (0, 3):
            piece = model.next_logits(tokens[:, i : i + 3], torch.tensor([i]), None)
    return bool((piece - single).norm() <= 0.05 * single.norm())


def _bounded(count: Tensor, most: int) -> Any:
    """A size from 1 to `most` that a value says."""
    size = count.item()
    torch._check(size >= 1)
    torch._check(size <= most)
    return size


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
    """Takes one token more of the texts in the first rows of the cache, or in the rows `row`, behind the first `start`
    tokens of each."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, row: Tensor | None = None) -> Tensor:
        return self.model.next_logits(tokens, start, row)
