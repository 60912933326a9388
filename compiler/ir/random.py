"""The number of the call, as a size: what random operators count with. The host program takes it once a call."""

from __future__ import annotations

from .index import Size

CALL = Size("random_call", 0, None)
