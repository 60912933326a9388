"""The order of passes: each has what it needs from passes before it, and no pass in between has undone that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["OrderedPass", "check_order"]


class OrderedPass(Protocol):
    """A row of a list of passes: facts by name that it needs, that it establishes, and that it may undo."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> frozenset[str]: ...
    @property
    def establishes(self) -> frozenset[str]: ...
    @property
    def undoes(self) -> frozenset[str]: ...


def check_order(passes: Iterable[OrderedPass]) -> None:
    """Raises AssertionError when a pass needs what no pass before it establishes, or what one has undone since."""
    facts: frozenset[str] = frozenset()
    for row in passes:
        if missing := row.needs - facts:
            raise AssertionError(
                f"pass {row.name} needs {', '.join(sorted(missing))}, which no pass before establishes"
            )
        facts = (facts - row.undoes) | row.establishes
