"""What is made of tensors that do not change, once for all entry points of a package, which hold the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from ..capture.state import memory_key

__all__ = ["Made"]

T = TypeVar("T")


@dataclass(frozen=True)
class Made:
    """Results by what they are and by the memory of the tensors that they are made of."""

    _known: dict[object, tuple[Sequence[Tensor], Any]] = field(default_factory=dict)

    def once(self, what: object, tensors: Sequence[Tensor], make: Callable[[], T]) -> T:
        """What `make` makes of tensors. what: all else that it depends on."""
        key = (what, *map(memory_key, tensors))
        if key not in self._known:
            self._known[key] = tensors, make()  # the tensors stay, so that no others come to lie in their memory
        found: T = self._known[key][1]
        return found
