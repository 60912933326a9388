"""The entry points with which a GPU draws tokens, so that no logits have to get to the host.

`draw` gives the token of a draw from all tokens, `draw_nucleus` of one from those that top-p and min-p leave.
`candidates` gives the likeliest tokens: top-k leaves some of these, and the host draws from them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["CANDIDATES", "Candidates", "Draw", "DrawNucleus", "draw_entries"]

#: tokens that `candidates` gives of a row
CANDIDATES = 64
#: parts of a row whose sums are formed side by side
_PARTS = 128
#: elements that are sorted together
_SORTED = 1024
#: the places of -inf and inf in the order of all floats
_LOWEST, _HIGHEST = -0x7F800001, 0x7F800000


def _divisor(size: int, most: int) -> int:
    """The largest divisor of a size up to `most`."""
    return max(n for n in range(1, most + 1) if size % n == 0)


def _weights(logits: Tensor, highest: Tensor, temperature: Tensor) -> Tensor:
    """e^((logit - highest) / temperature) in float64; temperature and highest for each row of all others."""
    return torch.exp(logits.double() / temperature - highest.double() / temperature)


def _float_of(key: Tensor) -> Tensor:
    """The float32 of a place in the order of all floats, for places i64 from that of -inf on."""
    return torch.where(key < 0, key ^ 0x7FFFFFFF, key).int().view(torch.float32)


def _place(ends: Tensor, sums: Tensor, part: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The part of a row that a draw falls into: its number [batch, 1], the sum before it, the sum that the draw passes,
    and whether there is such a part. sums, ends: of the parts, and up to the end of each."""
    bound = part[:, None] * ends[:, -1:]
    at = (ends <= bound).sum(-1, keepdim=True)
    known = (at < ends.shape[1]) & (ends[:, -1:] < torch.inf)
    at = torch.where(known, at, 0)
    return at, ends.gather(1, at) - sums.gather(1, at), bound, known


def _token(weights: Tensor, at: Tensor, before: Tensor, bound: Tensor, known: Tensor) -> Tensor:
    """The token in that part, by the weights of its tokens [batch, tokens]; -1 where there is none."""
    places = (before + weights.cumsum(-1) <= bound).sum(-1, keepdim=True)
    return torch.where(known & (places < weights.shape[1]), at * weights.shape[1] + places, -1)[:, 0]


def _own(parts: Tensor, at: Tensor) -> Tensor:
    """The elements of one part of each row: [batch, parts, elements] -> [batch, elements]"""
    return parts.gather(1, at[:, :, None].expand(-1, -1, parts.shape[2]))[:, 0]


class Draw(nn.Module):
    """The token at which the sum of the weights of all tokens up to it is more than a part of the whole sum."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.parts = _divisor(vocabulary, _PARTS)

    def forward(self, logits: Tensor, temperature: Tensor, part: Tensor) -> Tensor:
        """logits f32[batch, vocabulary], temperature f64[batch], part f64[batch] from 0 to 1 -> tokens i64[batch]; -1
        where a logit is no number, or rounding has left no token."""
        parts = logits.unflatten(1, (self.parts, -1))
        highest, temperatures = logits.amax(-1), temperature[:, None]
        sums = _weights(parts, highest[:, None, None], temperatures[:, :, None]).sum(-1)
        at, *rest = _place(sums.cumsum(-1), sums, part)
        return _token(_weights(_own(parts, at), highest[:, None], temperatures), at, *rest)


class DrawNucleus(nn.Module):
    """As Draw, from the likeliest tokens that add up to `top_p`, and at least `min_p` times as probable as the first.

    The least logit of them is found by bisection, in the order of all floats: a token is one of them if the weights of
    all likelier ones add up to less than top_p of the whole. Of tokens with this least logit the first ones are, until
    they add up to it.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.parts = _divisor(vocabulary, _PARTS)

    def forward(self, logits: Tensor, temperature: Tensor, part: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
        """As Draw; top_p and min_p f64[batch], 1 and 0 where they leave out nothing."""
        parts = logits.unflatten(1, (self.parts, -1))
        highest, temperatures, floor = logits.amax(-1)[:, None], temperature[:, None], min_p[:, None]
        whole = _sum_above(parts, torch.full_like(highest, -torch.inf), highest, temperatures)
        bound = torch.where(top_p[:, None] < 1, top_p[:, None] * whole, torch.inf)
        least = self._least(parts, bound, highest, temperatures)
        one = _weights(least, highest, temperatures)  # of each of those that are equal to it
        most = torch.ceil((bound - _sum_above(parts, least, highest, temperatures)) / one)  # of them are kept
        most = torch.where(top_p[:, None] < 1, most, 0.0)
        numbers = (parts == least[:, :, None]).sum(-1)
        before = (numbers.cumsum(-1) - numbers).double()
        kept = torch.minimum((most - before).clamp(min=0.0), numbers.double())
        weights = _weights(parts, highest[:, :, None], temperatures[:, :, None])
        likely = torch.where((parts > least[:, :, None]) & (weights >= floor[:, :, None]), weights, 0.0).sum(-1)
        sums = likely + kept * torch.where(one >= floor, one, 0.0)
        at, *rest = _place(sums.cumsum(-1), sums, part)
        own = _own(parts, at)
        same, weight = own == least, _weights(own, highest, temperatures)
        first = same & (before.gather(1, at) + same.double().cumsum(-1) <= most)
        return _token(torch.where(((own > least) | first) & (weight >= floor), weight, 0.0), at, *rest)

    def _least(self, parts: Tensor, bound: Tensor, highest: Tensor, temperatures: Tensor) -> Tensor:
        """The least float for which the weights of larger logits add up to less than the bound: f32[batch, 1]"""
        low = torch.full_like(bound, _LOWEST, dtype=torch.int64)
        high = torch.full_like(low, _HIGHEST)
        for _ in range(32):
            middle = (low + high) >> 1
            enough = _sum_above(parts, _float_of(middle), highest, temperatures) < bound
            low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
        return _float_of(high)


def _sum_above(parts: Tensor, least: Tensor, highest: Tensor, temperatures: Tensor) -> Tensor:
    """The sum of the weights of logits above `least`; all but the parts are [batch, 1]."""
    above = torch.where(parts > least[:, :, None], parts, -torch.inf)
    return _weights(above, highest[:, :, None], temperatures[:, :, None]).sum(-1).sum(-1, keepdim=True)


class Candidates(nn.Module):
    """The likeliest tokens of each row, of equal ones the first."""

    def __init__(self, vocabulary: int, count: int = CANDIDATES) -> None:
        super().__init__()
        self.count = min(count, vocabulary)

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """logits f32[batch, vocabulary] -> logits f32[batch, count] and tokens i64[batch, count], likeliest first"""
        return self._likeliest(logits, None)

    def _likeliest(self, values: Tensor, tokens: Tensor | None) -> tuple[Tensor, Tensor]:
        """The likeliest `count` are in `count` of the parts: those whose maxima are the largest. tokens: of the values;
        None: their places."""
        size = values.shape[1]
        own = _divisor(size, max(size // _SORTED, 16))
        if size <= _SORTED or size // own <= self.count or own == 1:
            found, at = values.topk(self.count)
            return found, at if tokens is None else tokens.gather(1, at)
        parts = values.unflatten(1, (-1, own))
        chosen = parts.amax(-1).topk(self.count)[1].sort(-1)[0]  # in their order, by which equal ones are chosen
        at = (chosen[:, :, None] * own + torch.arange(own)).flatten(1)
        return self._likeliest(values.gather(1, at), at if tokens is None else tokens.gather(1, at))


def draw_entries(vocabulary: int, rows: int, batch: Any) -> dict[str, Any]:
    """The entry points, as mycc.compile_entries takes them.

    Args:
        vocabulary: the size of a row of logits. rows: of the examples.
        batch: the dynamic sizes of the inputs; None: all are fixed.
    """
    sample = torch.Generator().manual_seed(3)
    logits = torch.randn((rows, vocabulary), generator=sample)
    ones, part = torch.ones(rows, dtype=torch.float64), torch.full((rows,), 0.5, dtype=torch.float64)

    def shapes(*names: str) -> dict[str, Any]:
        return dict.fromkeys(("logits", *names), batch)

    drawn = shapes("temperature", "part")
    nucleus = (logits, ones, part, part + 0.4, part * 0.1)
    return {
        "draw": (Draw(vocabulary), (logits, ones, part), None, drawn),
        "draw_nucleus": (DrawNucleus(vocabulary), nucleus, None, drawn | shapes("top_p", "min_p")),
        "candidates": (Candidates(vocabulary), (logits,), None, shapes()),
    }
