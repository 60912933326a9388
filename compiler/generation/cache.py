"""The cache as transformers' models see it: a layer for each of theirs, over buffers of ours.

transformers asks a layer of attention for two things: to take new keys and values and give all of them back, and how
many there are. A layer of a recurrence (Mamba and its kin) gives its states and takes the new ones. Here the memory
belongs to the module that is compiled, so that it becomes the package's state, and where the new positions lie is an
argument of the call: rows of a cache that has one for each text, or a table of blocks that texts share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, LinearAttentionLayer, StaticLayer

from ..model.operators import own as _own  # noqa: F401  (defines mycc::read_blocks)

__all__ = [
    "BLOCK",
    "TILE",
    "AttentionMemory",
    "CallLayer",
    "DummyLayer",
    "HybridMemory",
    "Memory",
    "Places",
    "RecurrentMemory",
    "Tiles",
    "call_cache",
    "keep_states",
]

#: positions of a block
BLOCK = 16
#: queries of a tile, of calls with texts of any lengths
TILE = 64
#: of layers that keep nothing; transformers has had it since 5.18 or later, and no such layer in a cache before
DummyLayer: Any = getattr(cache_utils, "DummyLayer", None)


@dataclass(frozen=True)
class Tiles:
    """Where attention finds the tokens of a call whose texts lie behind each other in one row: in tiles of TILE
    queries, each of one text.

    Attributes:
        positions: i64[tiles, TILE], of each query in its text; -1: there is none.
        table: i64[tiles, blocks of a text], the blocks of each tile's text.
        queries: i64[tiles, TILE], the token that each query is; of none any.
        places: i64[count], the place of each token in the tiles, counted through.
    """

    positions: Tensor
    table: Tensor
    queries: Tensor
    places: Tensor

    @property
    def token_positions(self) -> Tensor:
        """The position of each token in its text: i64[1, count]"""
        return self.positions.reshape(-1).index_select(0, self.places)[None]

    @property
    def token_blocks(self) -> Tensor:
        """The block that each token is written to: i64[1, count]"""
        columns = self.token_positions[0] // BLOCK
        return self.table[self.places // TILE, columns][None]


@dataclass(frozen=True)
class Places:
    """Where the tokens of a call lie in the cache.

    Attributes:
        rows: i64[batch], the text of each row; None: row i is text i.
        start: i64[batch], how many tokens of each text the cache holds.
        positions: i64[batch, count], of each token in its text.
        end: how many positions are read, a number that may be symbolic: all that are filled after the call.
        table: i64[batch, blocks of a text], the blocks that the positions of each text lie in, BLOCK in each; None: the
            cache has a row for each text.
        ring_end: so of a ring, whose slots are fewer; None where there is no ring.
        tiles: of texts that lie behind each other in one row of the call; None: each text has a row.
    """

    rows: Tensor | None
    start: Tensor
    positions: Tensor
    end: Any
    table: Tensor | None = None
    ring_end: Any = None
    tiles: Tiles | None = None


@dataclass(frozen=True)
class AttentionMemory:
    """keys and values: [texts, heads, length, size], or [blocks, heads, BLOCK, size]; sliding: whether its queries see
    a window of them only; ring: whether position p lies in slot p % length, where a window needs fewer slots than a
    text has positions. scales: of keys and values that are int8, as these, with a size of 1."""

    keys: Tensor
    values: Tensor
    sliding: bool
    ring: bool = False
    scales: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class RecurrentMemory:
    """States of the convolutions and of the recurrences of a layer, [texts, ...], by their numbers in the layer."""

    convolutions: dict[int, Tensor]
    recurrences: dict[int, Tensor]


@dataclass(frozen=True)
class HybridMemory:
    """Of a layer that has both, attention and a recurrence side by side (Falcon H1, Zamba 2)."""

    attention: AttentionMemory
    recurrent: RecurrentMemory


#: what a layer keeps; None: nothing
Memory = AttentionMemory | RecurrentMemory | HybridMemory | None


class CallLayer(StaticLayer):
    """A layer of attention during one call. It gives back the first `end` positions."""

    def __init__(self, memory: AttentionMemory, places: Places) -> None:
        super().__init__(memory.keys.shape[2])
        self.keys, self.values = memory.keys, memory.values
        self.memory, self.places = memory, places
        self.is_sliding = memory.sliding
        self.is_initialized = True
        self.device, self.dtype = memory.keys.device, memory.keys.dtype

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        scales = self.memory.scales
        if scales is None:
            keys, values = self._written(self.memory.keys, key_states), self._written(self.memory.values, value_states)
            return keys.to(key_states.dtype), values.to(value_states.dtype)
        return (
            self._quantised(self.memory.keys, scales[0], key_states),
            self._quantised(self.memory.values, scales[1], value_states),
        )

    def _quantised(self, memory: Tensor, scales: Tensor, new: Tensor) -> Tensor:
        """As _written, by int8 with a scale for each position and head."""
        wide = new.float()
        scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        numbers = self._written(memory, torch.round(wide / scale))
        return (numbers.float() * self._written(scales, scale)).to(new.dtype)

    def _written(self, memory: Tensor, new: Tensor) -> Tensor:
        """new [batch, heads, count, size] -> [batch, heads, end, size]; where texts are in tiles, [tiles, heads, end,
        size]."""
        at, batch = self.places, new.shape[0]
        moved = new.transpose(1, 2).to(memory.dtype)
        if at.table is None:
            rows = at.rows if at.rows is not None else torch.arange(batch)
            slots = at.positions % memory.shape[2] if self.memory.ring else at.positions
            memory[rows[:, None], :, slots] = moved
            filled = memory[:, :, : self._end()]
            return filled[:batch] if at.rows is None else filled.index_select(0, at.rows)
        blocks = at.table.gather(1, at.positions // BLOCK) if at.tiles is None else at.tiles.token_blocks
        memory[blocks, :, at.positions % BLOCK] = moved
        return torch.ops.mycc.read_blocks(memory, at.table, at.end)

    def _end(self) -> Any:
        return self.places.ring_end if self.memory.ring else self.places.end

    def get_mask_sizes(self, query_length: int) -> tuple[Any, Any]:
        """How many keys there are, and the position of the first; of a ring the position in each slot, i64[batch,
        slots], below 0 where it holds nothing yet. For texts in tiles these stand in the place of the position."""
        if not self.memory.ring:
            return self.places.end, self.places.tiles or 0
        slots, last = self.memory.keys.shape[2], self.places.positions[:, -1:]
        return self._end(), last - (last - torch.arange(self._end())[None]) % slots

    def get_seq_length(self) -> Any:
        return self.places.start


class CallRecurrentLayer(LinearAttentionLayer):
    """A layer of a recurrence during one call. A text that begins finds zeros, as if something had come before.

    The model changes the states in place: of a cache of one text these are the cache, else copies of the rows of the
    call's texts, which keep() writes back.
    """

    def __init__(self, memory: RecurrentMemory, places: Places) -> None:
        super().__init__(number_of_states=max(len(memory.convolutions), len(memory.recurrences), 1))
        self.kept: list[tuple[Tensor, Tensor]] = []  # states of all texts, and those of the call's
        self.rows = places.rows
        for states, own, known in (
            (memory.convolutions, self.conv_states, self.is_conv_states_initialized),
            (memory.recurrences, self.recurrent_states, self.is_recurrent_states_initialized),
        ):
            for number, state in states.items():
                begun = (places.start > 0).reshape(-1, *[1] * (state.dim() - 1))
                zero = torch.zeros((), dtype=state.dtype)
                if self.rows is None:
                    state.copy_(torch.where(begun, state, zero))
                    own[number] = state
                else:
                    chosen = torch.where(begun, state.index_select(0, self.rows), zero)
                    own[number] = chosen
                    self.kept.append((state, chosen))
                known[number] = True
                self.has_previous_state[number] = True
        for number, state in memory.convolutions.items():
            self.conv_kernel_size[number] = state.shape[-1]

    def keep(self) -> None:
        """Writes the states of the call's texts to their rows."""
        for state, own in self.kept:
            state[self.rows] = own


class CallHybridLayer(CallRecurrentLayer, CallLayer):  # type: ignore[misc,override]
    """A layer of attention and of a recurrence during one call."""

    def __init__(self, memory: HybridMemory, places: Places) -> None:
        CallRecurrentLayer.__init__(self, memory.recurrent, places)
        CallLayer.__init__(self, memory.attention, places)


def call_cache(memory: Sequence[Memory], places: Places) -> Cache:
    """The cache of one call."""
    return Cache(layers=[_call_layer(layer, places) for layer in memory])


def _call_layer(memory: Memory, places: Places) -> Any:
    if memory is None:
        return DummyLayer()
    if isinstance(memory, AttentionMemory):
        return CallLayer(memory, places)
    return CallHybridLayer(memory, places) if isinstance(memory, HybridMemory) else CallRecurrentLayer(memory, places)


def keep_states(cache: Cache) -> None:
    """After the model's call: has the cache hold the states that it left."""
    for layer in cache.layers:
        if isinstance(layer, CallRecurrentLayer):
            layer.keep()
