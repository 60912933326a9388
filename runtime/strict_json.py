"""JSON as RFC 8259 has it: Infinity and NaN are no numbers there, so they are neither written nor read.

src/json.cpp takes and refuses the same texts.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

__all__ = ["INT64", "decode", "encode", "finite"]

INT64 = range(-(1 << 63), 1 << 63)
_MAX_DEPTH, _MAX_VALUES, _MAX_SIZE = 128, 1 << 20, 1 << 28


def encode(value: object, **options: Any) -> str:
    """The value as JSON text, with json.dumps' options. Raises ValueError: it holds Infinity or NaN."""
    return json.dumps(value, allow_nan=False, **options)


def decode(text: str | bytes) -> Any:
    """The value of JSON text (bytes: in UTF-8). Whole numbers beyond 64 bits become floats.

    Raises:
        ValueError: it is no JSON, has a key twice in an object, is too large or nested too deeply. Infinity and NaN are
            refused by name.
    """
    if len(text) > _MAX_SIZE:
        raise ValueError("it is too large")
    words = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(words, object_pairs_hook=_object, parse_int=_integer, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_parts(value, escapes="\\u" in words)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _integer(text: str) -> int | float:
    value = int(text) if len(text) < 21 else None
    return value if value is not None and value in INT64 else float(text)


def _check_parts(value: Any, escapes: bool) -> None:
    """escapes: whether strings may hold characters that UTF-8 has no bytes for, or NUL."""
    level, depth, count = [value], 0, 1
    while level:
        if escapes:
            _check_strings(level)
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner.extend(part.values())
            elif isinstance(part, list):
                inner.extend(part)
        level, depth, count = inner, depth + 1, count + len(inner)
        if level and depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if count > _MAX_VALUES:
            raise ValueError("it has too many values")


def _check_strings(values: list[Any]) -> None:
    """The values that are strings, and the keys of objects."""
    for part in values:
        for word in (part,) if isinstance(part, str) else part if isinstance(part, dict) else ():
            if re.search("[\0\ud800-\udfff]", word):
                raise ValueError("a string has a wrong escape")


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
