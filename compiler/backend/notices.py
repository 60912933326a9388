"""What the user is told once: operators that eager torch runs, with the line of their model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from ...runtime.errors import CompileError
from ..model.source_lines import origin, place_of

__all__ = ["Fallback", "FallbackWarning", "fallback_of", "refuse", "tell"]

_told: set[tuple[str, str, int]] = set()  # of this process: the operators that were told of, by their lines


class FallbackWarning(UserWarning):
    """Eager torch runs an operator of a compiled graph."""


@dataclass(frozen=True)
class Fallback:
    """An operator that eager torch runs: its name, why, and the user's line."""

    operator: str
    reason: str
    file: str = ""
    line: int = 0
    text: str = ""

    def __str__(self) -> str:
        where = f"  {self.file}:{self.line}  {self.text}".rstrip() if self.file else ""
        return f"{self.operator}: {self.reason}{where}"


def fallback_of(node: fx.Node, reason: str) -> Fallback:
    """What is said of a node that eager torch runs."""
    where = origin(node)
    name = str(node.target).replace("aten.", "aten::", 1).removesuffix(".default")
    if where is None:
        place = place_of(node)
        return Fallback(name, f"{reason} ({place})" if place else reason)
    return Fallback(name, reason, where.file, where.line, where.text)


def tell(fallbacks: Sequence[Fallback]) -> None:
    """Warns of each once in this process, at the user's line."""
    for fallback in fallbacks:
        key = (fallback.operator, fallback.file, fallback.line)
        if key in _told:
            continue
        _told.add(key)
        text = f"mycc leaves {fallback.operator} to eager torch: {fallback.reason}"
        warnings.warn_explicit(text, FallbackWarning, fallback.file or "<graph>", fallback.line)


def refuse(fallbacks: Sequence[Fallback]) -> CompileError:
    """The error for what falls back, when nothing may."""
    distinct = list(dict.fromkeys(str(fallback) for fallback in fallbacks))
    many = "operators" if len(distinct) > 1 else "operator"
    return CompileError(
        f"{len(distinct)} {many} would run in eager torch",
        details=distinct,
        hint='Without options={"strict": True} they do, and the rest of the graph is compiled.',
    )
