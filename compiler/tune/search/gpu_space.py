"""Choices for the matrix kernels of GPUs: a choice is a tile, by the fields of GemmTile or AttentionTile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ...ir.plans.tiles import AttentionTile, GemmTile, Tile
from ..choices.choices import Choice, Choices

__all__ = ["choice_of", "tile_of", "tiles_of"]


def choice_of(tile: Tile) -> Choice:
    """A tile as a choice: the fields that differ from their defaults, and its sizes."""
    plain = {f.name: f.default for f in fields(tile)}
    return Choice.of({k: int(v) for k, v in asdict(tile).items() if k in ("m", "n", "k") or v != plain[k]})


def tile_of(key: str, choice: Choice) -> Tile | None:
    """The tile that a choice names for the kernels of a key; None: the cost model chooses.

    Raises:
        ValueError: it is no tile.
    """
    if not choice:
        return None
    kind = AttentionTile if key.startswith("attention") else GemmTile
    known = {f.name: f.default for f in fields(kind)}
    unknown = [name for name, value in choice.values if name not in known or not isinstance(value, int)]
    if unknown or not {f for f in ("m", "n", "k") if f in known} <= choice.as_dict().keys():
        raise ValueError(f"{choice} is no tile of {key}")
    values: dict[str, Any] = {n: bool(v) if isinstance(known[n], bool) else v for n, v in choice.values}
    return kind(**values)


def tiles_of(choices: Choices, target: str) -> Mapping[str, Tile]:
    """The tiles chosen for a target, by key. Raises ValueError."""
    found = {key: tile_of(key, choice) for key, choice in choices.by_target.get(target, {}).items()}
    return {key: tile for key, tile in found.items() if tile is not None}
