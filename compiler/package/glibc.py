"""Which glibc the libraries of a package need, by their version references (LSB 5.0, symbol versioning)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..build.elf import read_dynamic_symbols

__all__ = ["oldest_glibc"]


def oldest_glibc(libraries: Iterable[bytes]) -> str:
    """The oldest glibc that has every version the libraries need ("2.34"); "" when they need none.

    Raises:
        ValueError: one is no ELF file.
    """
    names = {name for data in libraries for _, name in read_dynamic_symbols(data).versions}
    versions = {match for name in names if (match := _glibc_version(name))}
    return ".".join(map(str, max(versions))) if versions else ""


def _glibc_version(name: str) -> tuple[int, ...] | None:
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", name)
    return tuple(map(int, match.group(1).split("."))) if match else None
