"""Attention and its masks in the form that compiles best, given to transformers by its own registries.

A mask is a formula of the positions of a query and of a key, as transformers' mask functions are: it is worked out
where a score is made, and never stored. Grouped heads stay grouped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    bidirectional_mask_function,
    causal_mask_function,
)

from ..model.operators import own as _own  # noqa: F401  # defines mycc::attention
from .cache import Tiles

__all__ = ["IMPLEMENTATION", "attend", "masks_of_calls", "queries_scaled", "register_attention"]

#: the name that a model's configuration gives to these functions
IMPLEMENTATION = "mycc"


def register_attention() -> None:
    """Lets `set_attn_implementation(IMPLEMENTATION)` choose them."""
    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, _mask)


@contextlib.contextmanager
def masks_of_calls() -> Iterator[None]:
    """Has models that keep their own attention ("sdpa", "eager"; Falcon, GPT-J) make masks here too: transformers' own
    functions take one position of a first token for all texts."""
    own = {"sdpa": _mask, "eager": _added_mask}
    before = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in own}
    for name, function in own.items():
        ALL_MASK_ATTENTION_FUNCTIONS[name] = function
    try:
        yield
    finally:
        for name, function in before.items():
            ALL_MASK_ATTENTION_FUNCTIONS[name] = function


@contextlib.contextmanager
def queries_scaled(network: nn.Module, positions: Tensor) -> Iterator[None]:
    """Has layers without rotations that scale queries by their positions (Llama 4) do so for texts that are not equally
    long: transformers' own code takes one position for all. positions: i64[batch, count]."""
    layers: list[Any] = [
        m
        for m in network.modules()
        if getattr(m, "attn_temperature_tuning", False) and not getattr(m, "use_rope", True)
    ]
    before = [layer.attn_temperature_tuning for layer in layers]
    hooks = [layer.q_proj.register_forward_hook(_scaled(layer, positions)) for layer in layers]
    for layer in layers:
        layer.attn_temperature_tuning = False
    try:
        yield
    finally:
        for layer, own, hook in zip(layers, before, hooks, strict=True):
            layer.attn_temperature_tuning = own
            hook.remove()


def _scaled(layer: Any, positions: Tensor) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """A hook of the projection of queries: [batch, count, size], by a factor for each token."""

    def hook(_: nn.Module, __: Any, queries: Tensor) -> Tensor:
        factor = torch.log1p(torch.floor((positions.float() + 1.0) / layer.floor_scale)) * layer.attn_scale + 1.0
        return (queries * factor[:, :, None]).to(queries.dtype)

    return hook


def _added_mask(dtype: torch.dtype = torch.float32, **given: Any) -> Tensor | None:
    """As _mask, as a number that is added to a score: 0, or the least one of the dtype."""
    seen = _mask(**given, left_out=False)
    if seen is None:
        return None
    return torch.where(seen, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: Any,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    left_out: bool = True,
    **_: Any,
) -> Tensor | None:
    """bool[batch or 1, 1, queries, keys], or None where every query sees every key.

    left_out: whether a causal mask of one query is None too; models with code of their own may need one.

    q_offset: of a call on the cache, the position of each text's first token, i64[batch]. kv_offset: of a ring, the
        position in each slot, i64[batch, slots]; of texts in tiles, these, which are batch and queries of the mask.
    """
    if isinstance(kv_offset, Tiles):
        return _mask_of_tiles(kv_offset, kv_length, mask_function, attention_mask)
    if mask_function is bidirectional_mask_function:
        return None if attention_mask is None else attention_mask[:, None, None, :].to(torch.bool)
    first = q_offset if isinstance(q_offset, Tensor) else torch.tensor([q_offset])
    single = left_out and q_length == 1 and first.shape[0] == 1 and not isinstance(kv_length, int)
    if single and mask_function is causal_mask_function and attention_mask is None:
        return None  # the keys end with the query
    queries = (first[:, None] + torch.arange(q_length))[:, None, :, None]
    ring = isinstance(kv_offset, Tensor)
    keys = kv_offset[:, None, None, :] if ring else (torch.arange(kv_length) + kv_offset)[None, None, None, :]
    texts = torch.arange(batch_size)[:, None, None, None]
    seen = mask_function(texts, torch.zeros((1, 1, 1, 1), dtype=torch.int64), queries, keys)
    if ring:
        seen = seen & (keys >= 0)
    if attention_mask is not None:
        seen = seen & attention_mask[:, None, None, :].to(torch.bool)
    return seen.expand(-1, -1, q_length, kv_length)


def _mask_of_tiles(tiles: Tiles, keys: Any, mask_function: Callable[..., Any], attention_mask: Tensor | None) -> Tensor:
    """bool[tiles, 1, TILE, keys]"""
    if attention_mask is not None or mask_function is bidirectional_mask_function:
        raise NotImplementedError("a mask of padding, or of texts that are seen whole, is not made for tiles")
    zero = torch.zeros((1, 1, 1, 1), dtype=torch.int64)
    texts = torch.arange(tiles.positions.shape[0])[:, None, None, None]
    places = torch.arange(keys)[None, None, None, :]
    seen = mask_function(texts, zero, tiles.positions[:, None, :, None], places)
    assert isinstance(seen, Tensor)
    return seen


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [batch, heads, queries, size], key and value [batch, key heads, keys, size] -> as query, heads third.

    softcap: scores become softcap * tanh(score / softcap). s_aux: [heads], a score more for each head that takes
    weight and has no value. position_bias: added to the scores.
    """
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    if softcap is None and s_aux is None:
        mask = attention_mask
        if position_bias is not None:
            mask = position_bias if mask is None else torch.where(mask, position_bias, float("-inf"))
        grouped = query.shape[1] != key.shape[1]
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, scale=scaling, enable_gqa=grouped
        )
        return out.transpose(1, 2), None
    sinks = None if s_aux is None else s_aux[:, None, None]
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    out, _ = torch.ops.mycc.attention(query, key, value, attention_mask, sinks, scale, softcap)
    return out.transpose(1, 2), None
