"""Text for a person at a terminal: counts of things, and names that may hold anything."""

from __future__ import annotations

import re

__all__ = ["counted", "parameters_text", "printable"]

# C0 but line feed and tab, DEL, C1, and what reorders text: marks, embeddings, overrides and isolates of directions
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters as their escapes: names in a package may be anything, and must not move the
    cursor, change the terminal or hide what stands there."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def counted(number: int, noun: str) -> str:
    """`1 kernel`, `0 kernels`, `1,234 kernels`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def parameters_text(number: int) -> str:
    """`109.5 M parameters`, `1 parameter`."""
    return f"{number / 1e6:.1f} M parameters" if number >= 100_000 else counted(number, "parameter")
