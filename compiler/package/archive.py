"""Writes the package's zip file: stored members at known offsets, sizes known beforehand (APPNOTE.TXT 4.3, 4.5.3).

Members that are mapped into memory start at multiples of 65536 (the largest page size of common systems); the padding
is an extra field of the local header. Dates are fixed, so that equal contents give equal files.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["PAGE", "ArchiveWriter"]

PAGE = 65536
HUGE_PAGE = 2 << 20
_LIMIT32 = 0xFFFFFFFF
_DATE = (1 << 5) | 1  # 1980-01-01
_UTF8 = 1 << 11
_PADDING_FIELD = 0x796D  # "my"
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_END64_LOCATOR = struct.Struct("<4sIQI")
_REGULAR_FILE = 0o100644 << 16


@dataclass(frozen=True)
class _Written:
    name: bytes
    start: int
    size: int
    crc: int
    needed: int
    flags: int


class ArchiveWriter:
    """Appends members to a seekable, empty file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        self._members: list[_Written] = []

    def add(self, name: str, size: int, pieces: Iterable[memoryview | bytes], alignment: int = 8) -> None:
        """Appends a member of `size` bytes from its pieces; its data starts at a multiple of `alignment`."""
        raw, wide = name.encode(), size >= _LIMIT32
        flags = 0 if name.isascii() else _UTF8
        fixed = _LOCAL.size + len(raw) + (20 if wide else 0)
        padding = -(self._position + fixed) % alignment
        if 0 < padding < 4:  # too short for an extra field
            self._file.write(bytes(padding))
            self._position += padding
            padding = 0
        start = self._position
        needed = 45 if wide or start >= _LIMIT32 else 20
        self._file.write(_local_header(raw, needed, flags, size, 0, padding))
        crc = 0
        written = 0
        for piece in whole_pages(pieces, start + fixed + padding):
            self._file.write(piece)
            crc = zlib.crc32(piece, crc)
            written += len(piece)
        if written != size:
            raise ValueError(f"member {name} has {written} bytes, not {size}")
        self._position = start + fixed + padding + size
        self._file.seek(start)
        self._file.write(_local_header(raw, needed, flags, size, crc, padding))
        self._file.seek(self._position)
        self._members.append(_Written(raw, start, size, crc, needed, flags))

    def reopen(self) -> None:
        """Takes back the directory and the last member, so that others can be added."""
        last = self._members.pop()
        self._position = last.start
        self._file.seek(last.start)
        self._file.truncate()

    def close(self, comment: bytes) -> int:
        """Writes the directory and the archive comment; returns the size of the file."""
        start = self._position
        directory = b"".join(_central_header(member) for member in self._members)
        count, size, end = len(self._members), len(directory), start + len(directory)
        tail = b""
        if start >= _LIMIT32 or count >= 0xFFFF:
            tail += _END64.pack(b"PK\6\6", _END64.size - 12, 45, 45, 0, 0, count, count, size, start)
            tail += _END64_LOCATOR.pack(b"PK\6\7", 0, end, 1)
        short = min(count, 0xFFFF)
        tail += _END.pack(b"PK\5\6", 0, 0, short, short, size, min(start, _LIMIT32), len(comment)) + comment
        self._file.write(directory + tail)
        return end + len(tail)


def whole_pages(pieces: Iterable[memoryview | bytes], position: int) -> Iterator[memoryview]:
    """The same bytes, in pieces that end at huge pages of the file (`position`: where they begin).

    File systems with large folios then hold the file in huge pages, and a process that maps it reads the weights with
    a fifth more bandwidth.
    """
    waiting = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        missing = -(position + len(waiting)) % HUGE_PAGE if waiting or position % HUGE_PAGE else 0
        head = view[:missing]
        if missing and len(head) == missing:
            yield memoryview(waiting + head)
            position += len(waiting) + missing
            waiting = bytearray()
        elif missing:
            waiting += head
        rest = view[len(head) :]
        whole = len(rest) // HUGE_PAGE * HUGE_PAGE
        if whole:
            yield rest[:whole]
            position += whole
        waiting += rest[whole:]
    if waiting:
        yield memoryview(waiting)


def _local_header(name: bytes, needed: int, flags: int, size: int, crc: int, padding: int) -> bytes:
    wide = size >= _LIMIT32
    extra = struct.pack("<HHQQ", 1, 16, size, size) if wide else b""
    if padding:
        extra += struct.pack("<HH", _PADDING_FIELD, padding - 4) + bytes(padding - 4)
    short = min(size, _LIMIT32)
    fields = (b"PK\3\4", needed, flags, 0, 0, _DATE, crc, short, short, len(name), len(extra))
    return _LOCAL.pack(*fields) + name + extra


def _central_header(member: _Written) -> bytes:
    wide = [value for value in (member.size, member.size, member.start) if value >= _LIMIT32]
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    size, start = min(member.size, _LIMIT32), min(member.start, _LIMIT32)
    made_by = (3 << 8) | 45  # Unix
    fields = (b"PK\1\2", made_by, member.needed, member.flags, 0, 0, _DATE, member.crc, size, size)
    rest = (len(member.name), len(extra), 0, 0, 0, _REGULAR_FILE, start)
    return _CENTRAL.pack(*fields, *rest) + member.name + extra
