"""JSON as RFC 8259 has it: Infinity and NaN are no numbers there, so they are neither written nor read."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["decode", "encode", "finite"]


def encode(value: object, **options: Any) -> str:
    """The value as JSON text, with json.dumps' options. Raises ValueError: it holds Infinity or NaN."""
    return json.dumps(value, allow_nan=False, **options)


def decode(text: str | bytes) -> Any:
    """The value of JSON text. Raises ValueError: it is no JSON; Infinity and NaN are refused by name."""
    return json.loads(text, parse_constant=_refuse)


def finite(value: Any) -> Any:
    """The value with None in place of every Infinity and NaN: for reports, whose numbers may be anything."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"it holds the number {name}, which JSON does not have")
