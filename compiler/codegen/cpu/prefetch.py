"""Statements that fetch memory before it is read."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.index import Var
from ...ir.plans.loop import Prefetch
from .emit import Emitter
from .scope import Scope


def prefetch_lines(found: Iterable[Prefetch], lanes: Var, scope: Scope) -> tuple[str, ...]:
    """The statements of prefetches, each once; lanes: the loop along the lanes."""
    text = Emitter(scope, lanes)
    lines = (
        f"prefetch_l{p.level}({place(p, text, scope)}{f' + {p.vectors} * W' if p.vectors else ''});" for p in found
    )
    return tuple(dict.fromkeys(lines))


def place(prefetch: Prefetch, text: Emitter, scope: Scope) -> str:
    """The address that is fetched."""
    return f"{scope.buffer(prefetch.buffer)} + {text.index(prefetch.index)}"
