"""Weights of quantised layers that read the same input, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..work import Work
from .merge_linears import merged_name
from .quantised_weights import QuantisedWeight


def mergeable(weight: QuantisedWeight, like: QuantisedWeight) -> bool:
    """Whether two weights can be one: equal columns, types, bits and groups, and scales of one type."""
    if weight.values.dtype != like.values.dtype:
        return False
    if (weight.scales is None) != (like.scales is None) or weight.by_rows != like.by_rows:
        return False
    same = weight.scales is None or like.scales is None or weight.scales.dtype == like.scales.dtype
    return same and (weight.columns, weight.bits, weight.group) == (like.columns, like.bits, like.group)


def alone(weight: QuantisedWeight) -> bool:
    """Whether nothing else reads the weight's constant, as a tied embedding does."""
    return weight.values.dim() == 2 and (weight.source is None or len(weight.source.users) == 1)


def merged(work: Work, weights: Sequence[QuantisedWeight]) -> QuantisedWeight:
    """The rows of all weights, one after another. Needs mergeable()."""
    first = weights[0]
    name = merged_name([weight.name for weight in weights])
    parts = tuple(part for weight in weights for part in (weight.parts or (weight.values,)))
    values = torch.cat([weight.values for weight in weights])
    if first.scales is None:
        return replace(first, name=name, values=values, source=None, parts=parts)
    known = [weight.scales for weight in weights if weight.scales is not None]
    scales = work.made.once("merged scales", known, lambda: torch.cat(known))
    return QuantisedWeight(name, values, None, scales, _zeros(weights), first.bits, parts)


def _zeros(weights: Sequence[QuantisedWeight]) -> torch.Tensor | None:
    known = [weight.zeros for weight in weights if weight.zeros is not None]
    if not known:
        return None
    dtype = known[0].dtype
    for zeros in known[1:]:
        dtype = torch.promote_types(dtype, zeros.dtype)
    parts = []
    for weight in weights:
        assert weight.scales is not None
        parts.append(torch.zeros(weight.scales.shape) if weight.zeros is None else weight.zeros)
    return torch.cat([part.to(dtype) for part in parts])


def merged_bias(biases: Sequence[torch.Tensor | None], rows: Sequence[int]) -> torch.Tensor | None:
    """The biases one after another, zeros for those that are missing; None: there is none."""
    known = next((bias for bias in biases if bias is not None), None)
    if known is None:
        return None
    own = zip(biases, rows, strict=True)
    return torch.cat([torch.zeros(n, dtype=known.dtype) if bias is None else bias.detach() for bias, n in own])
