"""Reads a package without running any of its code: the zip directory, manifest.json and the hashes.

This is the Python twin of the checks in libmycc.so. It serves `mycc inspect` and `mycc verify`, and a package that has
to bring up its own libmycc.so.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from .directory import SOURCES, Directory, Member, read_directory
from .errors import LoadError
from .files import open_regular
from .manifest import FORMAT_VERSION, check_manifest
from .native import ABI_VERSION
from .strict_json import decode

__all__ = ["FORMAT_VERSION", "MANIFEST", "SOURCES", "TASK", "Archive", "Member", "PackageSource", "sha256_hex"]

MANIFEST = "manifest.json"
#: the folder of the files that a package's task needs, such as a tokenizer
TASK = "task/"

PackageSource = str | bytes | bytearray | memoryview | os.PathLike[str]

_COMMENT_START = b"mycc:"
_COMMENT_PREFIX = b"mycc:%d:" % FORMAT_VERSION
_HINT_DAMAGED = "The file is damaged or incomplete: copy or build it again."


class Archive:
    """A package file, mapped read-only, or a package in memory.

    Opening checks the zip directory against the local headers; `manifest` checks the manifest's own hash, and all that
    it says.

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
        self._directory = _read_directory(self._data, self.label)
        self.members = self._directory.members

    def read(self, name: str) -> memoryview:
        """The bytes of a member, not copied and not checked."""
        member = self.members.get(name)
        if member is None:
            raise LoadError(f"{self.label} has no member {name}", hint=_HINT_DAMAGED)
        return self._data[member.offset : member.offset + member.size]

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """manifest.json, parsed, after its hash was compared with the one in the archive comment, and all of its fields
        with what they have to be."""
        text = bytes(self.read(MANIFEST))
        comment, listing = self._directory.comment, self._directory.listing
        if sha256_hex(text) != comment.removeprefix(_COMMENT_PREFIX).decode("latin-1"):
            raise LoadError(f"{self.label}: {MANIFEST} does not match its hash", hint=_HINT_DAMAGED)
        try:
            manifest = decode(text)
            for key, what, known in _VERSIONS:
                version = manifest.get(key) if isinstance(manifest, dict) else None
                if type(version) is not int:
                    raise ValueError("a version is missing")
                if version not in known:
                    raise _newer(self.label, what, version, known[-1])
            check_manifest(manifest, {name: member.size for name, member in self.members.items()})
            self._check_directory(manifest.get("directory"), text, listing)
            self._check_header(manifest["weights"])
        except ValueError as error:
            raise LoadError(f"{self.label}: {MANIFEST}: {error}", hint=_HINT_DAMAGED) from None
        checked: dict[str, Any] = manifest
        return checked

    def _check_directory(self, expected: str | None, text: bytes, listing: bytes) -> None:
        """The zip fields that no loader needs: the checksums of the others' members, and of the manifest's own."""
        from binascii import crc32

        if self._directory.last != MANIFEST:
            if expected is not None:
                raise ValueError("it is not the last member")
            return
        if expected is not None and sha256_hex(listing) != expected:
            raise ValueError("the zip directory does not match its hash")
        if crc32(text) != self.members[MANIFEST].crc:
            raise ValueError("it does not match its checksum")

    def _check_header(self, weights: dict[str, Any]) -> None:
        header = int.from_bytes(self.read(weights["member"])[:8], "little")
        if header != weights["data_offset"] - 8:
            raise ValueError(f"the header of {weights['member']} has a wrong size")

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


#: field of the manifest -> what it is, and the versions that are known
_VERSIONS = (
    ("format", "the package format", range(FORMAT_VERSION, FORMAT_VERSION + 1)),
    ("abi", "the code interface", range(1, ABI_VERSION + 1)),
)


def _newer(label: str, what: str, version: object, known: int) -> LoadError:
    return LoadError(
        f"{label} has {what} {version}; this mycc knows version {known}",
        hint="Use the mycc that built it, or compile the model again with this one.",
    )


def _map(path: str) -> memoryview:
    import mmap

    try:
        descriptor = open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            if size == 0:
                raise LoadError(f"{path} is empty", hint=_HINT_DAMAGED)
            return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)
    except IsADirectoryError as error:
        raise _no_package(path, f"cannot read {path}: {error.strerror}", None) from None
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the path
        raise LoadError(f"cannot read {path!r}: {error}") from None


def _no_package(path: str, message: str, hint: str | None = _HINT_DAMAGED) -> LoadError:
    """The error for a file that is no package: what it is instead, where that is known."""
    from .formats import refusal

    refused = refusal(path, package=True)
    return LoadError(message, hint=hint) if refused is None else LoadError(refused[0], hint=refused[1])


def _read_directory(data: memoryview, label: str) -> Directory:
    try:
        directory = read_directory(data)
    except ValueError as error:
        raise _no_package(label, f"{label} is not a whole mycc package: {error}") from None
    comment = directory.comment
    if not comment.startswith(_COMMENT_START):
        raise _no_package(label, f"{label} is a zip file, but not a mycc package")
    if not comment.startswith(_COMMENT_PREFIX):
        raise _newer(label, "the package format", comment.split(b":")[1].decode("latin-1"), FORMAT_VERSION)
    return directory
