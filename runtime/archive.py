"""Reads a package without running any of its code: the zip directory, manifest.json and the hashes.

This is the Python twin of the checks in libmycc.so. It serves `mycc inspect` and `mycc verify`, and a package that has
to bring up its own libmycc.so. Only the part of the zip format that the package writer uses is accepted: members are
stored (sources may be deflated), not encrypted, with local headers that repeat the directory (APPNOTE.TXT 4.3.7,
4.3.12 to 4.3.16, 4.5.3).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from .errors import LoadError

__all__ = ["FORMAT_VERSION", "MANIFEST", "SOURCES", "Archive", "Member", "PackageSource", "sha256_hex"]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
#: the folder of the sources, the members that are deflated
SOURCES = "src/"

PackageSource = str | bytes | bytearray | memoryview | os.PathLike[str]

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_DEFLATED = 8
_COMMENT_START = b"mycc:"
_COMMENT_PREFIX = b"mycc:%d:" % FORMAT_VERSION
_HINT_DAMAGED = "The file is damaged or incomplete: copy or build it again."


class Member(NamedTuple):
    """Where a member's bytes lie in the package file (bytes from its start) and how many they are there."""

    offset: int
    size: int
    crc: int


class Archive:
    """A package file, mapped read-only, or a package in memory.

    Opening checks the zip directory against the local headers; `manifest` checks the manifest's own hash.

    Raises:
        LoadError: the file cannot be read, or is not a whole mycc package of a known version.
    """

    def __init__(self, source: PackageSource) -> None:
        self.path: str | None = None
        if isinstance(source, bytes | bytearray | memoryview):
            self.label = "the package in memory"
            self._data = memoryview(source).cast("B")
        else:
            self.path = self.label = os.fspath(source)
            self._data = _map(self.path)
        self.size = len(self._data)
        self.members, self._comment = _read_directory(self._data, self.label)

    def read(self, name: str) -> memoryview:
        """The bytes of a member, not copied and not checked."""
        member = self.members.get(name)
        if member is None:
            raise LoadError(f"{self.label} has no member {name}", hint=_HINT_DAMAGED)
        return self._data[member.offset : member.offset + member.size]

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """manifest.json, parsed, after its hash was compared with the one in the archive comment."""
        from .strict_json import decode

        text = self.read(MANIFEST)
        if sha256_hex(text) != self._comment.removeprefix(_COMMENT_PREFIX).decode("latin-1"):
            raise LoadError(f"{self.label}: {MANIFEST} does not match its hash", hint=_HINT_DAMAGED)
        try:
            manifest = decode(bytes(text))
        except ValueError as error:
            hint = "The mycc that wrote the package had a fault: compile the model again."
            raise LoadError(f"{self.label}: {MANIFEST} cannot be read: {error}", hint=hint) from None
        version = manifest.get("format")
        if version != FORMAT_VERSION:
            raise _other_format(self.label, version)
        return manifest

    def check(self, name: str) -> None:
        """Compares the hash of one member (not the weights) with the manifest's."""
        recorded = self.manifest["members"].get(name)
        if recorded is None:
            raise LoadError(f"{self.label}: {name} is not listed in {MANIFEST}", hint=_HINT_DAMAGED)
        data = self.read(name)
        if len(data) != recorded["size"] or sha256_hex(data) != recorded["sha256"]:
            raise LoadError(f"{self.label}: {name} does not match its hash", hint=_HINT_DAMAGED)

    def check_members(self) -> int:
        """Compares the hashes of all members but the weights; returns how many there are."""
        listed = set(self.manifest["members"]) | {MANIFEST, self.manifest["weights"]["member"]}
        for name in sorted(self.members.keys() - listed):
            raise LoadError(f"{self.label}: {name} is not listed in {MANIFEST}", hint=_HINT_DAMAGED)
        for name in self.manifest["members"]:
            self.check(name)
        return len(self.manifest["members"])

    def check_weights(self) -> int:
        """Compares the block hashes of the weights, on all cores; returns the number of blocks."""
        from concurrent.futures import ThreadPoolExecutor

        weights = self.manifest["weights"]
        data, block = self.read(weights["member"]), weights["block"]
        starts = range(0, len(data), block)
        if len(data) != weights["size"] or len(starts) != len(weights["sha256"]):
            raise LoadError(f"{self.label}: {weights['member']} has not the size that was written", hint=_HINT_DAMAGED)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            hashes = pool.map(lambda start: sha256_hex(data[start : start + block]), starts)
            for index, (found, expected) in enumerate(zip(hashes, weights["sha256"], strict=True)):
                if found != expected:
                    raise LoadError(
                        f"{self.label}: block {index} of {weights['member']} (bytes {index * block} to "
                        f"{min(len(data), (index + 1) * block)}) does not match its hash",
                        hint=_HINT_DAMAGED,
                    )
        return len(starts)


def sha256_hex(data: memoryview | bytes) -> str:
    """SHA-256 of the bytes, in hexadecimal."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _other_format(label: str, version: object) -> LoadError:
    return LoadError(
        f"{label} has the package format {version}; this mycc knows version {FORMAT_VERSION}",
        hint="Use the mycc that built it, or compile the model again with this one.",
    )


def _map(path: str) -> memoryview:
    import mmap

    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise LoadError(f"{path} is empty", hint=_HINT_DAMAGED)
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror or error}") from error


def _read_directory(data: memoryview, label: str) -> tuple[dict[str, Member], bytes]:
    try:
        count, size, offset, comment = _find_end(data)
        if not comment.startswith(_COMMENT_START):
            raise LoadError(f"{label} is a zip file, but not a mycc package")
        if not comment.startswith(_COMMENT_PREFIX):
            raise _other_format(label, comment.split(b":")[1].decode("latin-1"))
        members = dict(_central_entries(data, count, size, offset))
        if len(members) != count:
            raise ValueError("a member is listed twice")
        return members, comment
    except (ValueError, struct.error) as error:
        raise LoadError(f"{label} is not a whole mycc package: {error}", hint=_HINT_DAMAGED) from None


def _find_end(data: memoryview) -> tuple[int, int, int, bytes]:
    """Number of entries, size and offset of the central directory, archive comment."""
    tail_start = max(0, len(data) - _END.size - len(_COMMENT_PREFIX) - 64)
    found = bytes(data[tail_start:]).rfind(b"PK\5\6")
    if found < 0:
        raise ValueError("there is no zip directory at its end")
    end = tail_start + found
    _, disk, first_disk, here, count, size, offset, comment_size = _END.unpack_from(data, end)
    comment = bytes(data[end + _END.size :])
    if len(comment) != comment_size or disk or first_disk or here != count:
        raise ValueError("the end of its zip directory is inconsistent")
    if 0xFFFF in (count,) or 0xFFFFFFFF in (size, offset):
        magic, _, position, _ = _END64_LOCATOR.unpack_from(data, end - _END64_LOCATOR.size)
        if magic != b"PK\6\7":
            raise ValueError("its zip64 locator is missing")
        magic, _, _, _, _, _, here, count, size, offset = _END64.unpack_from(data, position)
        if magic != b"PK\6\6" or here != count:
            raise ValueError("its zip64 directory is inconsistent")
        end = position
    if offset + size != end:
        raise ValueError("its zip directory does not end where it should")
    return count, size, offset, comment


def _central_entries(data: memoryview, count: int, size: int, position: int) -> Iterator[tuple[str, Member]]:
    limit, end = position, position + size
    for _ in range(count):
        fields = _CENTRAL.unpack_from(data, position)
        magic, _, needed, flags, method, time, date, crc, packed, length, name_size, extra_size, note_size = fields[:13]
        start = fields[16]
        if magic != b"PK\1\2":
            raise ValueError("its zip directory is damaged")
        position += _CENTRAL.size
        raw_name = bytes(data[position : position + name_size])
        extra = data[position + name_size : position + name_size + extra_size]
        position += name_size + extra_size + note_size
        if 0xFFFFFFFF in (packed, length, start):
            packed, length, start = _zip64_values(extra, packed, length, start)
        name = raw_name.decode("utf-8", "replace")
        if (method != _DEFLATED or not name.startswith(SOURCES)) and (method != 0 or packed != length):
            raise ValueError(f"member {name} is compressed")
        expected = (b"PK\3\4", needed, flags, method, time, date, crc)
        offset = _check_local(data, start, expected, raw_name, (packed, length))
        if offset + packed > limit:
            raise ValueError(f"member {name} reaches beyond the members' end")
        yield name, Member(offset, packed, crc)
    if position != end:
        raise ValueError("its zip directory has a wrong size")


def _zip64_values(extra: memoryview, *values: int) -> tuple[int, ...]:
    """The values that the 32-bit fields could not hold, from extra field 1, in the order of the header."""
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{size // 8}Q", extra, position + 4))
            return tuple(next(wide, value) if value == 0xFFFFFFFF else value for value in values)
        position += 4 + size
    raise ValueError("a zip64 field is missing")


def _check_local(
    data: memoryview, start: int, expected: tuple[Any, ...], raw_name: bytes, sizes: tuple[int, int]
) -> int:
    """Offset of the member's bytes, after its local header was compared with the directory."""
    fields = _LOCAL.unpack_from(data, start)
    *found, name_size, extra_size = fields[7:]
    name_start = start + _LOCAL.size
    extra_start = name_start + name_size
    if 0xFFFFFFFF in found:
        found = [*_zip64_values(data[extra_start : extra_start + extra_size], *found)]
    same_name = bytes(data[name_start:extra_start]) == raw_name
    if fields[:7] != expected or not same_name or tuple(found) != sizes:
        raise ValueError(f"the header of {raw_name.decode('utf-8', 'replace')} differs from the zip directory")
    return extra_start + extra_size
