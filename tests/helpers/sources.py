"""The generated code that a package holds."""

from __future__ import annotations

import zipfile
from pathlib import Path


def kernel_sources(path: Path) -> list[str]:
    """The units of kernels of a package, of all its targets."""
    with zipfile.ZipFile(path) as package:
        return [package.read(n).decode() for n in package.namelist() if "/kernels_" in n and n.endswith(".cpp")]
