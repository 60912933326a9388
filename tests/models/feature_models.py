"""Models for what a signature can hold: structures, keywords, constants, integers and booleans, several results."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Structures(nn.Module):
    """Nested arguments and keywords; nested results with an input, a constant and a repeated tensor among them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)
        self.register_buffer("table", torch.arange(6.0).reshape(2, 3))
        self.register_buffer("class", torch.ones(5))  # no name for an attribute

    def forward(
        self, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], *, scale: torch.Tensor, power: int = 2
    ) -> dict[str, Any]:
        x, more = pair
        h = self.layer(x) * scale
        again = h**power + more["bias"] + getattr(self, "class")
        return {
            "hidden": (h, [again, h]),  # h twice
            "input": x,
            "constant": self.table,
            "return": h * 2,
            "power": power,
            "nothing": None,
            "made": torch.full((2,), 0.5),
        }


class Integers(nn.Module):
    """Integers and booleans in and out."""

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, bytes_: torch.Tensor, small: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        kept = torch.where(mask, ids, -ids)
        return kept, mask.logical_not(), bytes_ // 2, small + 1, kept.sum(dim=1), (ids > 3) & mask, kept.float() / 3


class Tied(nn.Module):
    """One matrix as embedding and as classifier."""

    def __init__(self, tokens: int = 301, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mix(self.embed(ids))))  # type: ignore[no-any-return]


class Encode(nn.Module):
    """The first half of Tied, with the same weights."""

    def __init__(self, whole: Tied) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.whole.mix(self.whole.embed(ids)))


class Decode(nn.Module):
    """The second half of Tied."""

    def __init__(self, whole: Tied) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.whole.head(hidden)  # type: ignore[no-any-return]


def structures_example() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(0)
    args = ((torch.randn(3, 5), {"bias": torch.randn(5)}),)
    return Structures().eval(), args, {"scale": torch.randn(3, 1), "power": 3}


def integers_example() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    ids = torch.randint(-9, 9, (3, 7))
    arguments = ids, ids > 0, torch.randint(0, 255, (5,), dtype=torch.uint8), torch.arange(4, dtype=torch.int32)
    return Integers(), arguments


def tied_example() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Tied().eval(), (torch.randint(0, 301, (2, 6)),)
