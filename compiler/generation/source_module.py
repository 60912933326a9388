"""An encoder-decoder of transformers as one module: reading a source once, then the decoder over two caches.

The decoder's own keys and values grow from token to token. Those of its attention to the source are computed when the
source is read, and every token finds them in the cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from ...runtime.errors import CompileError
from .attention import IMPLEMENTATION, register_attention
from .cache import AttentionMemory, CallLayer, Places, call_cache

__all__ = ["DecodeSource", "Encode", "PrefillSource", "SourceModel"]


class SourceModel(nn.Module):
    """An encoder-decoder, and the caches of `texts` texts.

    Args:
        network: of transformers, in eval mode.
        example: a source of the encoder, as `Encode` takes it.
        length: tokens of an answer, those that the decoder begins with included.
        source_length: positions that the encoder gives at most.
        texts: rows of the caches.
        fixed: whether every source has source_length positions, as 30 seconds of sound have.
        whole: attention reads the whole cache and masks what is not filled, so that no size depends on a value.
    """

    def __init__(
        self, network: Any, example: Tensor, length: int, source_length: int, texts: int, fixed: bool, whole: bool
    ) -> None:
        super().__init__()
        self.network, self.length, self.texts = network, length, texts
        self.source_length, self.fixed, self.whole = source_length, fixed, whole
        register_attention()
        network.set_attn_implementation(IMPLEMENTATION)
        self._learned = False  # whether the decoder embeds positions
        self._at: list[Tensor] = []  # the positions of the call that is under way
        for module in network.get_decoder().modules():
            if hasattr(module, "compute_bias"):
                module.compute_bias = _bias_of_texts(module.compute_bias)
            if "past_key_values_length" in inspect.signature(module.forward).parameters:
                self._learned = True
                module.forward = self._places_of_texts(module.forward)
        own, cross = self._layers_after_a_token(example)
        self.size = network.config.get_text_config(decoder=True).hidden_size
        self._own = [self._keep("", i, layer, length) for i, layer in enumerate(own)]
        self._cross = [self._keep("source_", i, layer, source_length) for i, layer in enumerate(cross)]

    def check_rows(self, example: Tensor) -> None:
        """Raises CompileError where texts that are at different positions do not get what each would alone."""
        if self.texts == 1:
            return
        tokens, held = torch.tensor([[3], [4]]), torch.tensor([example.shape[-1], example.shape[-1]])
        row, first = torch.tensor([0, 1]), torch.tensor([3, 1])
        source = None if self.fixed else held
        with torch.no_grad():
            for i in (0, 1):
                self.read_source(example, row[i : i + 1])
                begun = torch.arange(3, 3 + int(first[i]))[None]
                self.next_logits(begun, row[:1], row[i : i + 1], None if source is None else source[:1])
            both = self.next_logits(tokens, first, None, source)
            each = [
                self.next_logits(
                    tokens[i : i + 1], first[i : i + 1], row[i : i + 1], None if source is None else held[:1]
                )
                for i in (0, 1)
            ]
            for buffer in self.buffers(recurse=False):
                buffer.zero_()
        wide = torch.cat(each)
        if not torch.allclose(both, wide, rtol=0.05, atol=0.02 * float(wide.abs().max())):
            raise CompileError(
                f"the decoder of {type(self.network).__name__} does not take texts at different positions together",
                hint="Leave --max-batch at 1.",
            )

    def _keep(self, kind: str, i: int, layer: Any, length: int) -> Callable[[], AttentionMemory]:
        names = f"{kind}keys{i}", f"{kind}values{i}"
        for name, value in zip(names, (layer.keys, layer.values), strict=True):
            self.register_buffer(name, value.new_zeros((self.texts, value.shape[1], length, value.shape[3])))
        return lambda: AttentionMemory(getattr(self, names[0]), getattr(self, names[1]), False)

    def _layers_after_a_token(self, example: Tensor) -> tuple[list[Any], list[Any]]:
        """The layers of the network's own caches after one token: they show what is kept, and its shapes."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        with torch.no_grad():
            self.decoded(self.encoded(example), torch.zeros((1, 1), dtype=torch.int64), cache, None, None)
        if not cache.cross_attention_cache.layers:
            raise CompileError(f"{type(self.network).__name__} has no attention to its source that packages can keep")
        return list(cache.self_attention_cache.layers), list(cache.cross_attention_cache.layers)

    def encoded(self, source: Tensor) -> Tensor:
        """What the encoder gives for a source: [1, positions, size]."""
        if source.is_floating_point():
            source = source.to(self.network.dtype)
        found = self.network.get_encoder()(source).last_hidden_state
        assert isinstance(found, Tensor)
        return found

    def decoded(
        self,
        encoded: Tensor,
        tokens: Tensor,
        cache: Cache,
        mask: Tensor | None,
        positions: Tensor | None,
        end: Any = None,
    ) -> Tensor:
        """f32[batch, vocabulary], the logits of what follows the tokens. mask: of the source's positions; end: of the
        answer's."""
        known = inspect.signature(self.network.forward).parameters
        more = {"decoder_position_ids": positions, "attention_mask": mask}
        if self._learned and end is not None:  # such decoders count positions where they get no mask
            more["decoder_attention_mask"] = torch.ones((tokens.shape[0], end), dtype=torch.int64)
        out = self.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded), decoder_input_ids=tokens,
            past_key_values=cache, use_cache=True,
            **{name: value for name, value in more.items() if name in known and value is not None},
        )  # fmt: skip
        return out.logits[:, -1].float()

    def read_source(self, source: Tensor, row: Tensor | None) -> Tensor:
        """Reads a source into row `row` of the cache; gives what the encoder does."""
        encoded = self.encoded(source)
        count = encoded.shape[1]
        places = Places(
            torch.zeros(1, dtype=torch.int64) if row is None else row,
            torch.zeros(1, dtype=torch.int64), torch.arange(count)[None], count,
        )  # fmt: skip
        cross = Cache(layers=[_WrittenLayer(memory(), places) for memory in self._cross])
        cache = _of_both(DynamicCache(), cross, False)
        self.decoded(encoded, torch.zeros((1, 1), dtype=torch.int64), cache, None, None)
        return encoded

    def next_logits(self, tokens: Tensor, start: Tensor, rows: Tensor | None, source: Tensor | None) -> Tensor:
        """tokens i64[batch, count], behind the first `start` i64[batch] of each text, whose sources have `source`
        i64[batch] positions -> logits f32[batch, vocabulary] of what follows them."""
        positions = start[:, None] + torch.arange(tokens.shape[1])
        places = Places(rows, start, positions, self._end(start, tokens.shape[1], self.length))
        end = self.source_length if source is None else self._end(source, 0, self.source_length)
        read: list[Any] = [_read_layer(memory(), rows, tokens.shape[0], end) for memory in self._cross]
        cache = _of_both(call_cache([memory() for memory in self._own], places), Cache(layers=read), True)
        mask = None
        if source is not None and (self.whole or self.texts > 1):
            mask = torch.arange(end)[None] < source[:, None]
        encoded = read[0].keys.new_zeros((tokens.shape[0], end, self.size))  # its shape alone is looked at
        self._at.append(positions)
        try:
            return self.decoded(encoded, tokens, cache, mask, positions, places.end)
        finally:
            self._at.clear()

    def _places_of_texts(self, embed: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The embedding of positions, for texts that are at different ones: the model's function, over all of them."""

        def embedded(tokens: Any, past_key_values_length: Any = 0, position_ids: Any = None) -> Tensor:
            if not self._at:
                return embed(tokens, past_key_values_length, position_ids=position_ids)
            at = self._at[-1]
            return embed(tokens, 0, position_ids=at.flatten()).reshape(*at.shape, -1)

        return embedded

    def _end(self, start: Tensor, count: Any, most: int) -> Any:
        """How many positions of a cache are filled after the call, of the longest text."""
        if self.whole:
            return most
        end = (start.max() + count).item()
        torch._check(end >= 1)
        torch._check(end <= most)
        return end


def _of_both(own: Cache, cross: Cache, written: bool) -> EncoderDecoderCache:
    """The cache of a decoder's own positions and of its source's. written: whether the source's hold something.

    Its class asks a cache that it is made of for the length of each layer. A trace has no answer to that, and capture
    would take TorchDynamo's way, which takes ten times as long.
    """
    cache = EncoderDecoderCache(own, DynamicCache())
    cache.cross_attention_cache = cross  # type: ignore[assignment]
    cache.is_updated = dict.fromkeys(range(len(cross.layers)), written)
    return cache


class _WrittenLayer(CallLayer):
    """A cache layer that stores the keys and values of a source, and gives attention the same ones to read."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        super().update(key_states, value_states)
        return key_states, value_states


def _read_layer(memory: AttentionMemory, rows: Tensor | None, batch: Any, end: Any) -> CallLayer:
    """A layer whose keys and values are those of the sources in the cache."""
    start = torch.zeros(1, dtype=torch.int64)
    layer = CallLayer(memory, Places(rows, start, start[None], end))

    def taken(kept: Tensor) -> Tensor:
        filled = kept[:, :, :end]
        return filled[:batch] if rows is None else filled.index_select(0, rows)

    layer.keys, layer.values = taken(memory.keys), taken(memory.values)
    return layer


def _bias_of_texts(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """T5's bias of relative positions, for texts that are at different positions: the model's function, whose queries
    are then the texts."""

    def biases(query_length: Any, key_length: Any, device: Any = None, past_seen_tokens: Any = 0) -> Tensor:
        if isinstance(past_seen_tokens, Tensor) and past_seen_tokens.shape[0] != 1:
            found = compute(1, key_length, device=device, past_seen_tokens=past_seen_tokens[:, None])
            return found.permute(2, 1, 0, 3)  # [1, heads, texts, keys] -> [texts, heads, 1, keys]
        return compute(query_length, key_length, device=device, past_seen_tokens=past_seen_tokens)

    return biases


class Encode(nn.Module):
    """Reads a source, which lies in row `row` of the cache from then on."""

    def __init__(self, model: SourceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, row: Tensor | None = None) -> Tensor:
        return self.model.read_source(source, row)


class PrefillSource(nn.Module):
    """Reads tokens of one answer, those that it begins with, behind its first `start` tokens."""

    def __init__(self, model: SourceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, row: Tensor | None = None, source: Tensor | None = None) -> Tensor:
        return self.model.next_logits(tokens, start, row, source)


class DecodeSource(nn.Module):
    """Takes one token more of the answers in the first rows of the cache."""

    def __init__(self, model: SourceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, source: Tensor | None = None) -> Tensor:
        return self.model.next_logits(tokens, start, None, source)
