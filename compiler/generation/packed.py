"""One call for several texts that are not equally long: their tokens lie behind each other, as one row.

    texts of 5, 1 and 3 tokens  ->  tokens i64[1, 9]
                                    tiles  [0 1 2 3] [4 . . .] [5 . . .] [6 7 8 .]   (of 4 queries here, of TILE below)

Layers of a network see the row, in which no place is empty. Attention sees tiles of TILE queries, each of one text,
with that text's blocks of the cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from .attention import IMPLEMENTATION, attend
from .cache import BLOCK, TILE, Tiles
from .module import TextModel

__all__ = ["Read", "packed_entry", "tiles_of"]


class Read(nn.Module):
    """Reads tokens of several texts. wanted: i64[texts], the tokens whose logits are given."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, places: Tensor, queries: Tensor, positions: Tensor, table: Tensor, wanted: Tensor
    ) -> Tensor:
        tiles = Tiles(positions, table, queries, places)
        with _attention_by_tiles(tiles):
            return self.model.packed_logits(tokens, tiles, wanted)


@contextlib.contextmanager
def _attention_by_tiles(tiles: Tiles) -> Iterator[None]:
    """Has networks attend from the queries of tiles to the keys of each tile's text."""

    def attention(module: nn.Module, query: Tensor, *given: Any, **options: Any) -> tuple[Tensor, None]:
        heads, size = query.shape[1], query.shape[3]
        chosen = query[0].index_select(1, tiles.queries.reshape(-1))
        cut = chosen.reshape(heads, -1, TILE, size).transpose(0, 1)
        found, _ = attend(module, cut, *given, **options)  # [tiles, TILE, heads, size]
        return found.flatten(0, 1).index_select(0, tiles.places)[None], None

    AttentionInterface.register(IMPLEMENTATION, attention)
    try:
        yield
    finally:
        AttentionInterface.register(IMPLEMENTATION, attend)


def tiles_of(pieces: Sequence[tuple[int, int]], tables: Tensor) -> Tiles:
    """The tiles of pieces of texts: of each the tokens that its cache holds, and those that come.

    tables: i64[pieces, blocks of a text].
    """
    rows: list[tuple[int, int, int, int]] = []  # piece, token, position, count
    places: list[int] = []
    token = 0
    for piece, (start, count) in enumerate(pieces):
        for first in range(0, count, TILE):
            own = min(TILE, count - first)
            places += range(TILE * len(rows), TILE * len(rows) + own)
            rows.append((piece, token + first, start + first, own))
        token += count
    at = torch.arange(TILE)
    of_piece, of_token, position, number = torch.tensor(rows).T[..., None]
    there = at < number
    return Tiles(
        torch.where(there, position + at, -1),
        tables.index_select(0, of_piece[:, 0]),
        torch.where(there, of_token + at, 0),
        torch.tensor(places),
    )


def packed_entry(model: TextModel, texts: int, chunk: int, vocabulary: int) -> dict[str, Any]:
    """The entry point `read`, as mycc.compile_entries takes it; none where the network does not read packed texts as it
    reads each alone, such as one with attention of its own.

    texts: that one call takes at most. chunk: tokens of prompts in a call at most.
    """
    if min(chunk, model.length) < 8 or not _reads_packed(model.network, vocabulary):
        return {}
    columns = -(-model.length // BLOCK)
    tables = (torch.arange(3 * columns).reshape(3, columns)) % (model.blocks - 1) + 1
    tiles = tiles_of([(0, 5), (2, 1), (0, 4)], tables)
    sizes = {
        "count": torch.export.Dim("count", min=1, max=chunk + texts),
        "tiles": torch.export.Dim("tiles", min=1, max=chunk // TILE + texts),
        "wanted": torch.export.Dim("wanted", min=1, max=texts),
    }
    shapes = {
        "tokens": {1: sizes["count"]}, "places": {0: sizes["count"]}, "queries": {0: sizes["tiles"]},
        "positions": {0: sizes["tiles"]}, "table": {0: sizes["tiles"]}, "wanted": {0: sizes["wanted"]},
    }  # fmt: skip
    tokens = torch.arange(10)[None] % vocabulary
    given = (tokens, tiles.places, tiles.queries, tiles.positions, tiles.table, torch.tensor([5, 9]))
    return {"read": (Read(model), given, None, shapes)}


def _reads_packed(network: Any, vocabulary: int) -> bool:
    """Whether a call for two texts, the first of which goes on, gives the logits of calls for each."""
    model = TextModel(network, 8, 2, True, blocks=3)
    first, second = (torch.arange(5)[None] * 7 + 3) % vocabulary, (torch.arange(4)[None] * 5 + 1) % vocabulary
    zero, table = torch.zeros(1, dtype=torch.int64), torch.tensor([[1], [2]])
    tiles = tiles_of([(3, 2), (0, 4)], table)
    tokens = torch.cat([first[:, 3:], second], 1)
    with torch.no_grad():
        model.next_logits(first[:, :3], zero, None, table[:1])
        try:
            found = Read(model)(tokens, tiles.places, tiles.queries, tiles.positions, tiles.table, torch.tensor([1, 5]))
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            return False
        rows = [model.next_logits(text, zero, None, table[i : i + 1]) for i, text in enumerate((first, second))]
    alone = torch.cat(rows)
    return bool((found - alone).norm() <= torch.finfo(network.dtype).eps ** 0.5 * alone.norm())
