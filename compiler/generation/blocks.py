"""The entry points of a package whose texts share a cache in blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...runtime.errors import CompileError
from .cache import BLOCK
from .common import positive
from .module import TextModel

__all__ = ["block_count", "block_entries"]


def block_count(tokens: int | None, length: int, texts: int, draft_tokens: int = 0) -> int:
    """How many blocks the cache has, the first one, which no text gets, among them; 0: it has a row for each text, as
    for one text alone, or where guesses are checked.

    tokens: of all texts, that it shall hold; None: as many as may come.
    """
    if texts == 1 or draft_tokens:
        if tokens is not None:
            reason = "draft_tokens" if draft_tokens else "one text at a time"
            raise CompileError(
                f"cache_tokens does not go with {reason}",
                hint="A cache in blocks is for several texts (max_batch) without guesses (draft_tokens).",
            )
        return 0
    if tokens is not None and positive("cache_tokens", tokens) < length:
        raise CompileError(f"cache_tokens is {tokens}, which does not hold one text of max_length {length}")
    most = -(-length // BLOCK) * texts
    return 1 + (most if tokens is None else min(-(-tokens // BLOCK), most))


def block_entries(model: TextModel, texts: int, prompt: Tensor, ones: Tensor, count: Any) -> dict[str, Any]:
    """The entry points, as mycc.compile_entries takes them.

    Args:
        model: with its cache in blocks.
        texts: that one call takes at most.
        prompt, ones: example tokens, i64[1, n] and i64[texts, 1].
        count: the dynamic size of prompts; None: it is fixed.
    """
    columns = -(-model.length // BLOCK)
    places = torch.arange(texts * columns).reshape(-1, texts).T % (model.blocks - 1) + 1  # no text has block 0
    batch = {0: torch.export.Dim("batch", min=1, max=texts)}
    shapes = {"tokens": count, "start": None, "table": None}
    start = torch.arange(texts) % min(BLOCK, model.length)
    return {
        "prefill": (_Read(model), (prompt, torch.tensor([0]), places[:1]), None, shapes),
        "decode": (_Read(model), (ones, start, places), None, dict.fromkeys(shapes, batch)),
        "copy": (_Copy(model), (torch.tensor([1]), torch.tensor([2]))),
    }


class _Read(nn.Module):
    """Reads tokens of texts behind the first `start` of each. table: the blocks of each text."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, table: Tensor) -> Tensor:
        return self.model.next_logits(tokens, start, None, table)


class _Copy(nn.Module):
    """Copies a block of the cache, for a text that goes on otherwise than another one with which it shared it."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model.copy_block(source, target)
