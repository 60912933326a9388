"""The entry points with which a GPU draws tokens, so that no logits have to get to the host.

`draw` gives the token of a draw from all tokens. `candidates` gives the likeliest tokens and the sum of all weights:
what top-k, top-p and min-p leave is mostly among them, and the host draws from these few.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["CANDIDATES", "Candidates", "Draw", "draw_entries"]

#: tokens that `candidates` gives of a row
CANDIDATES = 64
#: parts of a row whose sums are formed side by side
_PARTS = 128
#: elements that are sorted together
_SORTED = 1024


def _divisor(size: int, most: int) -> int:
    """The largest divisor of a size up to `most`."""
    return max(n for n in range(1, most + 1) if size % n == 0)


def _weights(logits: Tensor, highest: Tensor, temperature: Tensor) -> Tensor:
    """e^((logit - highest) / temperature) in float64; temperature and highest for each row of all others."""
    return torch.exp(logits.double() / temperature - highest.double() / temperature)


class Draw(nn.Module):
    """The token at which the sum of the weights of all tokens up to it is more than a part of the whole sum."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.parts = _divisor(vocabulary, _PARTS)

    def forward(self, logits: Tensor, temperature: Tensor, part: Tensor) -> Tensor:
        """logits f32[batch, vocabulary], temperature f64[batch], part f64[batch] from 0 to 1 -> tokens i64[batch]; -1
        where a logit is no number, or rounding has left no token."""
        parts = logits.unflatten(1, (self.parts, -1))
        highest, heat = logits.amax(-1), temperature[:, None]
        sums = _weights(parts, highest[:, None, None], heat[:, :, None]).sum(-1)
        ends = sums.cumsum(-1)
        bound = part[:, None] * ends[:, -1:]
        at = (ends <= bound).sum(-1, keepdim=True)
        known = (at < self.parts) & (ends[:, -1:] < torch.inf)
        at = torch.where(known, at, 0)
        own = parts.gather(1, at[:, :, None].expand(-1, -1, parts.shape[2]))[:, 0]
        before = ends.gather(1, at) - sums.gather(1, at)
        places = (before + _weights(own, highest[:, None], heat).cumsum(-1) <= bound).sum(-1, keepdim=True)
        known = known & (places < parts.shape[2])
        return torch.where(known, at * parts.shape[2] + places, -1)[:, 0]


class Candidates(nn.Module):
    """The likeliest tokens of each row, of equal ones the first."""

    def __init__(self, vocabulary: int, count: int = CANDIDATES) -> None:
        super().__init__()
        self.count, self.parts = min(count, vocabulary), _divisor(vocabulary, _PARTS)

    def forward(self, logits: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """logits f32[batch, vocabulary], temperature f64[batch] -> logits f32[batch, count] and tokens i64[batch,
        count], the likeliest first; sum f64[batch] of the weights of all tokens, that of the likeliest being 1."""
        values, tokens = self._likeliest(logits, None)
        highest = values[:, :1, None]
        parts = logits.unflatten(1, (self.parts, -1))
        return values, tokens, _weights(parts, highest, temperature[:, None, None]).sum(-1).sum(-1)

    def _likeliest(self, values: Tensor, tokens: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of parts first, then of what these leave. tokens: of the values; None: their places."""
        size = values.shape[1]
        own = _divisor(size, _SORTED)
        if size <= 2 * _SORTED or own <= self.count:
            found, at = values.topk(self.count)
            return found, at if tokens is None else tokens.gather(1, at)
        found, at = values.unflatten(1, (-1, own)).topk(self.count)
        at = (at + torch.arange(size // own)[:, None] * own).flatten(1)
        return self._likeliest(found.flatten(1), at if tokens is None else tokens.gather(1, at))


def draw_entries(vocabulary: int, rows: int, batch: Any) -> dict[str, Any]:
    """The entry points, as mycc.compile_entries takes them.

    Args:
        vocabulary: the size of a row of logits. rows: of the examples.
        batch: the dynamic sizes of the inputs; None: all are fixed.
    """
    sample = torch.Generator().manual_seed(3)
    logits = torch.randn((rows, vocabulary), generator=sample)
    ones, part = torch.ones(rows, dtype=torch.float64), torch.full((rows,), 0.5, dtype=torch.float64)
    names = dict.fromkeys(("logits", "temperature", "part"), batch)
    return {
        "draw": (Draw(vocabulary), (logits, ones, part), None, names),
        "candidates": (
            Candidates(vocabulary), (logits, ones), None, {n: names[n] for n in ("logits", "temperature")}
        ),
    }  # fmt: skip
