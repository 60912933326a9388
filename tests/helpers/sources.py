"""The generated code that a package holds."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path


def kernel_sources(path: Path) -> list[str]:
    """The units of kernels of a package, of all its targets."""
    with zipfile.ZipFile(path) as package:
        return [package.read(n).decode() for n in package.namelist() if "/kernels_" in n and n.endswith(".cpp")]


_BOOL_OBJECT = re.compile(r"\bbool\s*(const\s*)?[*&]|\bbool\s+\w+\s*\[|\bsizeof\s*\(\s*bool\b|<\s*(const )?bool\s*[>,]")


def bools_in_memory(path: Path) -> list[str]:
    """Lines of the generated code that take memory for a C++ `bool`, whose byte compilers believe to be 0 or 1."""
    with zipfile.ZipFile(path) as package:
        names = [n for n in package.namelist() if n.startswith("src/") and n.endswith((".cpp", ".h"))]
        texts = {n: package.read(n).decode() for n in names}
    assert texts
    lines = [(name, line.strip()) for name, text in texts.items() for line in text.splitlines()]
    return [f"{name}: {line}" for name, line in lines if _BOOL_OBJECT.search(line)]
