"""The architectures of bench/sweep.py: a row each, in a small configuration with random weights."""

from __future__ import annotations

from architectures import mixed, text, vision
from architectures.base import Row

ROWS = [*text.ROWS, *vision.ROWS, *mixed.ROWS]
BY_NAME = {row.name: row for row in ROWS}

#: of architectures that are not right: why, in plain words
NOTES: dict[str, str] = {}

__all__ = ["BY_NAME", "NOTES", "ROWS", "Row"]
