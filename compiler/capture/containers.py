"""Dicts and lists among the arguments that forward changes: a package leaves those of its caller as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["changed_containers"]


def changed_containers(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """What forward put into dicts and lists among its arguments, or took out: `arguments[0]['z']`.

    Tensors that it writes to in place are the same objects before and after.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            place = f"{path}[{key!r}]"
            if key in before and key in after:
                yield from changed_containers(before[key], after[key], place)
            else:
                yield place
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        for i in range(max(len(before), len(after))):
            if i < min(len(before), len(after)):
                yield from changed_containers(before[i], after[i], f"{path}[{i}]")
            else:
                yield f"{path}[{i}]"
    elif before is not after and path:
        yield path
