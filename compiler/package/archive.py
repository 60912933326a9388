"""Writes the package's zip file: members at known offsets, sizes known beforehand (APPNOTE.TXT 4.3, 4.5.3), stored but
for texts, which may be deflated.

Members that are mapped into memory start at multiples of 65536 (the largest page size of common systems); the padding
is an extra field of the local header. Dates are fixed, so that equal contents give equal files.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

__all__ = ["PAGE", "ArchiveWriter", "deflated"]

PAGE = 65536
HUGE_PAGE = 2 << 20
_LIMIT32 = 0xFFFFFFFF
_STORED, _DEFLATED = 0, 8
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
    unpacked: int
    crc: int
    needed: int
    flags: int

    @property
    def method(self) -> int:
        return _STORED if self.unpacked == self.size else _DEFLATED


class ArchiveWriter:
    """Appends members to a seekable, empty file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        self._members: list[_Written] = []

    def add(
        self, name: str, size: int, pieces: Iterable[memoryview | bytes], alignment: int = 8, text: bytes | None = None
    ) -> None:
        """Appends a member of `size` bytes from its pieces; its data starts at a multiple of `alignment`.

        text: what the pieces are the deflated form of.
        """
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
        member = _Written(raw, start, size, size if text is None else len(text), 0, needed, flags)
        self._file.write(_local_header(member, padding))
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
        member = replace(member, crc=crc if text is None else zlib.crc32(text))
        self._file.write(_local_header(member, padding))
        self._file.seek(self._position)
        self._members.append(member)

    def listing(self) -> bytes:
        """The directory's entries of the members so far."""
        return b"".join(_central_header(member) for member in self._members)

    def reopen(self) -> None:
        """Takes back the directory and the last member, so that others can be added."""
        last = self._members.pop()
        self._position = last.start
        self._file.seek(last.start)
        self._file.truncate()

    def close(self, comment: bytes) -> int:
        """Writes the directory and the archive comment; returns the size of the file."""
        start = self._position
        directory = self.listing()
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


def deflated(text: bytes) -> bytes:
    """The text as a deflated member holds it; the text itself when it does not get smaller."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = compressor.compress(text) + compressor.flush()
    return packed if len(packed) < len(text) else text


def _local_header(member: _Written, padding: int) -> bytes:
    wide = member.size >= _LIMIT32
    extra = struct.pack("<HHQQ", 1, 16, member.unpacked, member.size) if wide else b""
    if padding:
        extra += struct.pack("<HH", _PADDING_FIELD, padding - 4) + bytes(padding - 4)
    sizes = min(member.size, _LIMIT32), min(member.unpacked, _LIMIT32)
    fields = (b"PK\3\4", member.needed, member.flags, member.method, 0, _DATE, member.crc, *sizes)
    return _LOCAL.pack(*fields, len(member.name), len(extra)) + member.name + extra


def _central_header(member: _Written) -> bytes:
    wide = [value for value in (member.size, member.size, member.start) if value >= _LIMIT32]
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    size, unpacked, start = (min(value, _LIMIT32) for value in (member.size, member.unpacked, member.start))
    made_by = (3 << 8) | 45  # Unix
    fields = (b"PK\1\2", made_by, member.needed, member.flags, member.method, 0, _DATE, member.crc, size, unpacked)
    rest = (len(member.name), len(extra), 0, 0, 0, _REGULAR_FILE, start)
    return _CENTRAL.pack(*fields, *rest) + member.name + extra
