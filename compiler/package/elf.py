"""Which glibc a shared object needs: the version references of its ELF file (LSB 5.0, symbol versioning)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator

__all__ = ["oldest_glibc", "version_needs"]

_SECTION = struct.Struct("<IIQQQQIIQQ")
_NEED = struct.Struct("<HHIII")  # Elf64_Verneed: version, count, file, first auxiliary, next
_NEED_AUX = struct.Struct("<IHHII")  # Elf64_Vernaux: hash, flags, other, name, next
_SHT_GNU_VERNEED = 0x6FFFFFFE


def version_needs(data: bytes) -> list[tuple[str, str]]:
    """(library, version) pairs that a 64-bit little-endian ELF file needs: ("libm.so.6", "GLIBC_2.29")."""
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, table + i * entry_size) for i in range(count)]
    found: list[tuple[str, str]] = []
    for section in sections:
        if section[1] == _SHT_GNU_VERNEED:
            strings = sections[section[6]][4]
            found += _needs(data, section[4], strings)
    return found


def _needs(data: bytes, position: int, strings: int) -> Iterator[tuple[str, str]]:
    while True:
        _, count, file, first, following = _NEED.unpack_from(data, position)
        aux = position + first
        for _ in range(count):
            _, _, _, name, step = _NEED_AUX.unpack_from(data, aux)
            yield _text(data, strings + file), _text(data, strings + name)
            aux += step
        if following == 0:
            return
        position += following


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def oldest_glibc(objects: Iterable[bytes]) -> str:
    """The oldest glibc that has every version the objects need ("2.34"); "" when they need none."""
    versions = {match for data in objects for _, name in version_needs(data) if (match := _glibc_version(name))}
    return ".".join(map(str, max(versions))) if versions else ""


def _glibc_version(name: str) -> tuple[int, ...] | None:
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", name)
    return tuple(map(int, match.group(1).split("."))) if match else None
