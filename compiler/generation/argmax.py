"""The entry point with which a GPU chooses the likeliest tokens, so that no logits have to get to the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["argmax_entry"]


class Argmax(nn.Module):
    """The likeliest token of each row: the first of equal logits, and the first NaN where there is one."""

    #: parts of a row whose maxima are found side by side
    PARTS = 128

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.parts = max(n for n in range(1, self.PARTS + 1) if vocabulary % n == 0)

    def forward(self, logits: Tensor) -> Tensor:
        """logits f32[batch, vocabulary] -> tokens i64[batch]"""
        parts = logits.unflatten(1, (self.parts, -1))
        largest, places = parts.max(-1)
        part = largest.argmax(-1, keepdim=True)
        return (part * parts.shape[2] + places.gather(1, part))[:, 0]


def argmax_entry(vocabulary: int, rows: int, batch: Any) -> Any:
    """The entry point, as mycc.compile_entries takes it.

    Args:
        vocabulary: the size of a row. rows: of the example.
        batch: the dynamic sizes of the logits; None: all are fixed.
    """
    sample = torch.Generator().manual_seed(2)
    logits = torch.randn((rows, vocabulary), generator=sample)
    return Argmax(vocabulary), (logits,), None, {"logits": batch}
