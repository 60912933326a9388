"""The constants of machine.h, which compiler/codegen/cpu/machine_header.py renders."""

from __future__ import annotations

import re

__all__ = ["constants"]


def constants(text: str) -> dict[str, str]:
    """The constants of a rendered header: name -> value."""
    return dict(re.findall(r"constexpr \w+ (\w+)(?:\[\d+\])? = ([^;]*);", text))
