"""The directory of a package: a zip file exactly as mycc writes it (APPNOTE.TXT 4.3.7, 4.3.12 to 4.3.16, 4.5.3).

Members are stored (sources may be deflated), local headers repeat the directory, members lie one after the other with
zeros between, and dates and attributes are always the same. src/zip.cpp takes and refuses the same files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["SOURCES", "Directory", "Member", "read_directory"]

#: the folder of the sources, the members that are deflated
SOURCES = "src/"

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_DEFLATED, _UTF8 = 8, 1 << 11
_ZIP64_FIELD, _PADDING_FIELD = 1, 0x796D
_ALIGNMENT = 65536
_LONGEST_COMMENT, _MOST_MEMBERS = 128, 1 << 16
# What mycc writes into every entry: made by Unix with version 4.5, on 1980-01-01, a regular file that all may read.
_MADE_BY, _TIME, _DATE, _ATTRIBUTES = (3 << 8) | 45, 0, (1 << 5) | 1, 0o100644 << 16
_VERSION, _VERSION64 = 20, 45


class Member(NamedTuple):
    """Where a member's bytes lie in the package file (bytes from its start) and how many they are there."""

    offset: int
    size: int
    crc: int


class Directory(NamedTuple):
    """The members by name, the archive comment, the name of the last member, and the entries of all others."""

    members: dict[str, Member]
    comment: bytes
    last: str
    listing: bytes


class _End(NamedTuple):
    entries: int
    size: int
    offset: int
    end: int
    comment: bytes


def read_directory(data: memoryview) -> Directory:
    """Reads and checks the directory.

    Raises:
        ValueError: the file is not one that mycc wrote; the text says why.
    """
    end = _find_end(data)
    if end.offset + end.size != end.end:
        raise ValueError("its directory has a wrong size")
    if end.entries > min(end.size // _CENTRAL.size, _MOST_MEMBERS):
        raise ValueError("its directory has a wrong number of members")
    members: dict[str, Member] = {}
    position, used, last, start = end.offset, 0, "", end.offset
    for name, member, begin, following in _entries(data, end):
        gap = begin - used
        if gap < 0 or not _zeros(data, used, begin):
            raise ValueError(f"member {name} has foreign data before it")
        if name in members:
            raise ValueError(f"member {name} is there twice")
        members[name] = member
        start, position, last, used = position, following, name, member.offset + member.size
    if position != end.end:
        raise ValueError("its directory has a wrong size")
    if not _zeros(data, used, end.offset):
        raise ValueError("there is foreign data before its directory")
    return Directory(members, end.comment, last, bytes(data[end.offset : start]))


def _find_end(data: memoryview) -> _End:
    last = len(data) - _END.size
    tail = bytes(data[max(0, last - _LONGEST_COMMENT) :])
    for at in range(len(tail) - _END.size, -1, -1):
        if not tail.startswith(b"PK\5\6", at):
            continue
        _, disk, first_disk, here, count, size, offset, comment_size = _END.unpack_from(tail, at)
        if at + _END.size + comment_size != len(tail):
            continue
        if disk or first_disk or here != count:
            raise ValueError("its end record is inconsistent")
        found = _End(count, size, offset, len(data) - len(tail) + at, tail[at + _END.size :])
        return _find_end64(data, found) if count == _MAX16 or _MAX32 in (size, offset) else found
    raise ValueError("there is no zip directory at its end")


def _find_end64(data: memoryview, short: _End) -> _End:
    at = short.end - _END64_LOCATOR.size - _END64.size
    if at < 0:
        raise ValueError("its zip64 record is missing")
    if _END64_LOCATOR.unpack_from(data, at + _END64.size) != (b"PK\6\7", 0, at, 1):
        raise ValueError("its zip64 locator is inconsistent")
    magic, size, *versions, disk, first_disk, here, count, length, offset = _END64.unpack_from(data, at)
    known = (b"PK\6\6", _END64.size - 12, [_VERSION64] * 2, 0, 0, count)
    pairs = ((short.entries, _MAX16, count), (short.size, _MAX32, length), (short.offset, _MAX32, offset))
    same = all(field in (limit, value) for field, limit, value in pairs)
    if (magic, size, versions, disk, first_disk, here) != known or not same:
        raise ValueError("its zip64 record is inconsistent")
    return _End(count, length, offset, at, short.comment)


def _entries(data: memoryview, end: _End) -> Iterator[tuple[str, Member, int, int]]:
    """Each member with its name, where its local header lies, and where the next entry of the directory does."""
    position = end.offset
    for _ in range(end.entries):
        if end.end - position < _CENTRAL.size:
            raise ValueError("its directory is cut off")
        (magic, made_by, *common, name_size, extra_size, note_size, disk, internal, attributes, start) = (
            _CENTRAL.unpack_from(data, position)
        )
        needed, flags, method, time, date, crc, packed, size = common
        fixed = (magic, made_by, time, date, note_size, disk, internal, attributes)
        if fixed != (b"PK\1\2", _MADE_BY, _TIME, _DATE, 0, 0, 0, _ATTRIBUTES):
            raise ValueError("its directory is inconsistent")
        position += _CENTRAL.size + name_size + extra_size
        if position > end.end:
            raise ValueError("its directory is cut off")
        raw = bytes(data[position - name_size - extra_size : position - extra_size])
        name = _name(raw)
        extra = data[position - extra_size : position]
        large = _MAX32 in (size, packed, start)
        size, packed, start = _wide_values(extra, name, size, packed, start)
        if needed != (_VERSION64 if large else _VERSION):
            raise ValueError(f"member {name} has a wrong version")
        stored = method == 0 and packed == size
        if not (name.startswith(SOURCES) if method == _DEFLATED else stored):
            raise ValueError(f"member {name} is compressed")
        if flags != (0 if raw.isascii() else _UTF8):
            raise ValueError(f"member {name} has unknown flags")
        head = (b"PK\3\4", needed, flags, method, time, date, crc)
        offset = _data_offset(data, start, end.offset, head, raw, (size, packed))
        yield name, Member(offset, packed, crc), start, position


def _name(raw: bytes) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = ""
    if not name or "\0" in name:
        raise ValueError("a member has no proper name")
    return name


def _data_offset(
    data: memoryview, start: int, limit: int, head: tuple[object, ...], raw: bytes, sizes: tuple[int, int]
) -> int:
    """Where the member's bytes begin, after its local header was compared with the directory."""
    name = raw.decode()
    if limit - start < _LOCAL.size + len(raw):
        raise ValueError(f"member {name} lies outside of its place")
    *found, packed, size, name_size, extra_size = _LOCAL.unpack_from(data, start)
    name_start = start + _LOCAL.size
    offset = name_start + name_size + extra_size
    if tuple(found) != head or bytes(data[name_start : name_start + name_size]) != raw:
        raise ValueError(f"member {name} differs from its directory entry")
    if offset + sizes[1] > limit:
        raise ValueError(f"member {name} is cut off")
    if _wide_values(data[name_start + name_size : offset], name, size, packed) != sizes:
        raise ValueError(f"member {name} differs from its directory entry")
    if offset % _ALIGNMENT and name.endswith((".so", ".safetensors")):
        raise ValueError(f"member {name} is not aligned to {_ALIGNMENT} bytes")
    return offset


def _wide_values(extra: memoryview, name: str, *values: int) -> tuple[int, ...]:
    """The values, those that 32 bits could not hold from the extra field; the other extra field is padding of zeros."""
    wide, position, seen = values, 0, False
    missing = values.count(_MAX32)
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        begin, position = position + 4, position + 4 + length
        if position <= len(extra) and kind == _ZIP64_FIELD and not seen and length == 8 * missing:
            fields = iter(struct.unpack_from(f"<{missing}Q", extra, begin))
            wide, seen = tuple(next(fields) if value == _MAX32 else value for value in values), True
        elif kind != _PADDING_FIELD or bytes(extra[begin:position]).strip(b"\0"):
            position = -1
            break
    if position != len(extra) or (missing and not seen):
        raise ValueError(f"member {name} has a wrong extra field")
    return wide


def _zeros(data: memoryview, begin: int, end: int) -> bool:
    """Whether there is nothing but padding between two places."""
    return end - begin < _ALIGNMENT and not bytes(data[begin:end]).strip(b"\0")
