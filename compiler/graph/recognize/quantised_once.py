"""What is made of quantised weights is made once for all entry points of a package, which hold the same tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor

from ...capture.state import memory_key

__all__ = ["made_once", "weights_made_once"]

T = TypeVar("T")

_made: ContextVar[dict[object, tuple[Sequence[Tensor], Any]] | None] = ContextVar("made", default=None)


@contextmanager
def weights_made_once() -> Iterator[None]:
    """Inside of it made_once() gives what it gave before for the same tensors."""
    token = _made.set({})
    try:
        yield
    finally:
        _made.reset(token)


def made_once(what: object, tensors: Sequence[Tensor], make: Callable[[], T]) -> T:
    """What `make` makes of tensors, which do not change; what: all else that it depends on."""
    known = _made.get()
    if known is None:
        return make()
    key = (what, *map(memory_key, tensors))
    if key not in known:
        known[key] = tensors, make()  # the tensors stay, so that no others come to lie in their memory
    found: T = known[key][1]
    return found
