"""A property that is computed once: nodes, expressions and atoms do not change."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")


class once(cached_property[T]):
    """functools.cached_property without its lock (Python before 3.12), which takes longer than most answers."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = self.func(instance)
        instance.__dict__[self.attrname] = value
        return value
