"""The seed of the call's random numbers, as a size: the runtime gives it with every call."""

from __future__ import annotations

from .index import Size

CALL = Size("random_call", 0, None)
