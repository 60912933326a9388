"""How often Python looks for garbage while a compile runs, and memory that goes back to the system.

A compile makes millions of small objects that live until its end. By its default Python goes through the young ones
after each 700 and through all of them again and again: a fifth of the processor time of a large training step.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["give_back", "rare_collections"]

_YOUNG = 100_000  #: new objects after which the youngest are looked through
_lock = Lock()
_running = 0  # compiles inside
_before = gc.get_threshold()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Inside of it collections are rare; behind the last of several that overlap they are as they were before."""
    global _running, _before
    with _lock:
        if not _running:
            _before = gc.get_threshold()
            if 0 < _before[0] < _YOUNG:  # 0: the user has switched them off
                gc.set_threshold(_YOUNG, *_before[1:])
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                gc.set_threshold(*_before)


def give_back() -> None:
    """Frees what large tensors leave behind: those that only cycles of objects hold, and pages that the C library keeps
    of those that are gone."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
