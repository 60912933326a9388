"""The registry of lowerings: operator overload name -> function(Lowering context, node arguments) -> value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context

LoweringFunction = Callable[..., Any]


class Registry:
    """Rows added by the family files; a name is registered once."""

    def __init__(self) -> None:
        self._rows: dict[str, LoweringFunction] = {}

    def row(self, *names: str) -> Callable[[LoweringFunction], LoweringFunction]:
        """Registers a function (context, *args, **kwargs) for overloads such as "aten.linear.default"."""

        def add(function: LoweringFunction) -> LoweringFunction:
            for name in names:
                if name in self._rows:
                    raise ValueError(f"{name} has two lowerings")
                self._rows[name] = function
            return function

        return add

    def put(self, name: str, function: LoweringFunction) -> None:
        """Registers a function of the user's, in place of an earlier one of that name."""
        self._rows[name] = function

    def find(self, name: str) -> LoweringFunction | None:
        return self._rows.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._rows)


REGISTRY = Registry()
row = REGISTRY.row

__all__ = ["REGISTRY", "Context", "LoweringFunction", "row"]
