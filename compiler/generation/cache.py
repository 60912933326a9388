"""The cache of keys and values as transformers' models see it: a layer for each of theirs, over buffers of ours.

transformers asks a cache for two things: to take new keys and values and give all of them back, and how many there are.
Here the memory belongs to the module that is compiled, so that it becomes the package's state, and where the new
positions lie is an argument of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, StaticLayer

__all__ = ["LayerMemory", "Places", "call_cache"]


@dataclass(frozen=True)
class Places:
    """Where the tokens of a call lie in the cache.

    Attributes:
        rows: i64[batch], the text of each row; None: row i is text i.
        positions: i64[batch, count], of each token in its text.
        end: how many positions are read, a number that may be symbolic: all that are filled after the call.
    """

    rows: Tensor | None
    positions: Tensor
    end: Any


@dataclass(frozen=True)
class LayerMemory:
    """keys and values: [texts, heads, length, size]; sliding: whether its queries see a window of them only."""

    keys: Tensor
    values: Tensor
    sliding: bool


class CallLayer(StaticLayer):
    """A layer of the cache during one call. It gives back the first `end` positions."""

    def __init__(self, memory: LayerMemory, places: Places) -> None:
        super().__init__(memory.keys.shape[2])
        self.keys, self.values = memory.keys, memory.values
        self.memory, self.places = memory, places
        self.is_sliding = memory.sliding
        self.is_initialized = True
        self.device, self.dtype = memory.keys.device, memory.keys.dtype

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self._written(self.memory.keys, key_states), self._written(self.memory.values, value_states)

    def _written(self, memory: Tensor, new: Tensor) -> Tensor:
        """new [batch, heads, count, size] -> [batch, heads, end, size]"""
        at, batch = self.places, new.shape[0]
        rows = at.rows if at.rows is not None else torch.arange(batch)
        memory[rows[:, None], :, at.positions] = new.transpose(1, 2).to(memory.dtype)
        filled = memory[:, :, : at.end]
        return filled[:batch] if at.rows is None else filled.index_select(0, at.rows)

    def get_mask_sizes(self, query_length: int) -> tuple[Any, int]:
        return self.places.end, 0

    def get_seq_length(self) -> Any:
        return self.places.positions[:, 0]


def call_cache(memory: Sequence[LayerMemory], places: Places) -> Cache:
    """The cache of one call."""
    return Cache(layers=[CallLayer(layer, places) for layer in memory])
