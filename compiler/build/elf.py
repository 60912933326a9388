"""What a shared library asks of others and offers to them: the dynamic symbols of its ELF file.

Sources: the System V ABI (ELF-64 object file format) and LSB 5.0 on symbol versions. 64-bit little-endian files only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["DynamicSymbols", "read_dynamic_symbols", "read_section"]

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_DYNAMIC = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")  # version, count, file, first auxiliary, next
_NEED_AUX = struct.Struct("<IHHII")  # hash, flags, index, name, next
_SHT_DYNAMIC, _SHT_DYNSYM = 6, 11
_SHT_VERNEED, _SHT_VERSYM = 0x6FFFFFFE, 0x6FFFFFFF
_DT_NEEDED = 1
_LOCAL = 0  # binding
_VERSION_MASK = 0x7FFF  # the top bit of a version index only says "hidden"


@dataclass(frozen=True)
class DynamicSymbols:
    """libraries: names of the libraries it needs; imports: (symbol, library or "" where no version names one);
    exports: names that it defines for others; versions: ("libm.so.6", "GLIBC_2.29"), what it needs of a library. All
    sorted."""

    libraries: tuple[str, ...]
    imports: tuple[tuple[str, str], ...]
    exports: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]


def read_dynamic_symbols(data: bytes) -> DynamicSymbols:
    """The dynamic symbols of an ELF file.

    Raises:
        ValueError: not a whole 64-bit little-endian ELF file.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    try:
        return _read(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged ELF file: {error}") from None


def read_section(data: bytes, name: str) -> bytes | None:
    """The contents of a section by name; None when the file has no such section, or is no whole ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        sections = _sections(data)
        (names,) = struct.unpack_from("<H", data, 0x3E)
        for section in sections:
            if _text(data, sections[names][4] + section[0]) == name:
                return data[section[4] : section[4] + section[5]]
    except (struct.error, IndexError, UnicodeDecodeError):
        pass
    return None


def _sections(data: bytes) -> list[tuple[int, ...]]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    return [_SECTION.unpack_from(data, start + i * entry_size) for i in range(count)]


def _read(data: bytes) -> DynamicSymbols:
    sections = _sections(data)
    by_type = {section[1]: section for section in sections}

    libraries: list[str] = []
    if dynamic := by_type.get(_SHT_DYNAMIC):
        strings = sections[dynamic[6]][4]
        entries = _DYNAMIC.iter_unpack(data[dynamic[4] : dynamic[4] + dynamic[5]])
        libraries = [_text(data, strings + value) for tag, value in entries if tag == _DT_NEEDED]

    imports: list[tuple[str, str]] = []
    exports: list[str] = []
    needs = list(_version_needs(data, sections, by_type))
    if symbols := by_type.get(_SHT_DYNSYM):
        strings = sections[symbols[6]][4]
        libraries_by_version = {index: library for index, library, _ in needs}
        table = by_type.get(_SHT_VERSYM)
        rows = list(_SYMBOL.iter_unpack(data[symbols[4] : symbols[4] + symbols[5]]))
        for i, (name, kind, _, section, _, _) in enumerate(rows):
            if kind >> 4 == _LOCAL:  # the null symbol, sections: of no use to others
                continue
            if section:
                exports.append(_text(data, strings + name))
                continue
            version = struct.unpack_from("<H", data, table[4] + 2 * i)[0] & _VERSION_MASK if table else 0
            imports.append((_text(data, strings + name), libraries_by_version.get(version, "")))
    versions = sorted({(library, name) for _, library, name in needs})
    return DynamicSymbols(tuple(sorted(libraries)), tuple(sorted(imports)), tuple(sorted(exports)), tuple(versions))


def _version_needs(
    data: bytes, sections: list[tuple[int, ...]], by_type: dict[int, tuple[int, ...]]
) -> Iterator[tuple[int, str, str]]:
    """(version index, the library that has this version, the version's name)."""
    needs = by_type.get(_SHT_VERNEED)
    if needs is None:
        return
    strings, position = sections[needs[6]][4], needs[4]
    for _ in range(needs[7]):
        _, count, file, first, following = _NEED.unpack_from(data, position)
        library, aux = _text(data, strings + file), position + first
        for _ in range(count):
            _, _, index, name, step = _NEED_AUX.unpack_from(data, aux)
            yield index & _VERSION_MASK, library, _text(data, strings + name)
            aux += step
        position += following


def _text(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    if end < 0:
        raise IndexError("a name without an end")
    return data[start:end].decode()
