"""A content-addressed cache on disk: bytes found again by everything that they were made from.

    ROOT/entries/ab/cdef...   one entry: header, full key, value; its name is the digest of its key
    ROOT/tmp/                 entries while they are written, and the working folders of builds (workspace.py)
    ROOT/failed/              sources that did not compile, kept for a report

The folders have mode 0700. Those that belong to another user or that others may write to are refused, and so are such
entries (private.py): an object from there would run in the next package.

An entry is written beside its place and renamed into it, so that readers and writers in other threads and processes
meet whole entries only; what a power cut leaves of one fails its checksum and counts as absent. The key is stored in
full and compared in full: two keys of one digest can never be taken for each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...runtime.errors import CompileError
from .private import check_private, make_private, read_private

__all__ = ["DEFAULT_LIMIT", "Cache", "CacheInfo", "clear", "default_folder", "encode_key", "info", "storage_error"]

DEFAULT_LIMIT = 2 * 10**9  # bytes
_KEEP = 0.9  # of the limit, after a trim: so that not every build has to trim
_TRIM_AFTER = 1 / 32  # of the limit, written by this process since the last trim
_HEADER = struct.Struct("<8sQQ32s")  # magic, bytes of the key, bytes of the value, SHA-256 of both
_MAGIC = b"mycc-c1\n"


@dataclass(frozen=True)
class CacheInfo:
    """The cache's folder, how many entries it holds and their bytes on disk."""

    path: Path
    entries: int
    bytes: int


def default_folder() -> Path:
    """$MYCC_CACHE_DIR, else $XDG_CACHE_HOME/mycc, else ~/.cache/mycc.

    Raises:
        CompileError: none of them is set and there is no home folder.
    """
    if chosen := os.environ.get("MYCC_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    # The specification of XDG base directories has relative paths ignored.
    if (base := os.environ.get("XDG_CACHE_HOME")) and Path(base).is_absolute():
        return Path(base) / "mycc"
    try:
        return Path.home() / ".cache" / "mycc"
    except RuntimeError:
        raise CompileError("there is no home folder to keep the cache in", hint=_CHOOSE) from None


def encode_key(parts: Iterable[tuple[str, str | bytes]]) -> bytes:
    """One key from labelled parts; different parts never give the same key."""
    encoded = []
    for label, value in parts:
        data = value.encode() if isinstance(value, str) else value
        encoded.append(b"%d:%s%d:%s" % (len(label.encode()), label.encode(), len(data), data))
    return b"".join(encoded)


class Cache:
    """Values by key under one folder, which is made when the first entry is stored.

    folder: None is `default_folder()`; limit: bytes of all entries, of which the least recently used go first;
    digest: of a key, 32 bytes (tests put a bad one here). Methods may be called by many threads.
    """

    def __init__(
        self,
        folder: Path | None = None,
        limit: int = DEFAULT_LIMIT,
        digest: Callable[[bytes], bytes] = lambda key: hashlib.sha256(key).digest(),
    ) -> None:
        self.folder = default_folder() if folder is None else Path(folder).absolute()
        self.limit = limit
        self._digest = digest
        self._lock = threading.Lock()
        self._written = 0

    def get(self, key: bytes) -> bytes | None:
        """The value stored under exactly this key; None when there is none, or only a damaged one.

        Raises:
            CompileError: others may have written it.
        """
        path = self._path(key)
        self._check_folders(path)
        data = read_private(path)
        if data is None:
            return None
        value = _decode(data, key)
        if value is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written to still serves
                os.utime(path)  # recently used
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Stores the value; a present entry of the same key or the same digest is replaced.

        Raises:
            CompileError: the folder cannot be written to, its disk is full, or others may write to it.
        """
        path = self._path(key)
        checksum = hashlib.sha256(key + value).digest()
        try:
            self._write(path, (_HEADER.pack(_MAGIC, len(key), len(value), checksum), key, value))
        except OSError as error:
            raise storage_error(error, self.folder) from error
        with self._lock:
            self._written += _HEADER.size + len(key) + len(value)
            due = self._written > self.limit * _TRIM_AFTER
        if due:
            self.trim()

    def trim(self) -> int:
        """Removes the least recently used entries until the rest is within the limit; gives how many."""
        with self._lock:
            self._written = 0
        found = sorted(self._entries(), key=lambda entry: entry[1].st_mtime_ns)
        total = sum(stat.st_size for _, stat in found)
        if total <= self.limit:
            return 0
        removed = 0
        for path, stat in found:
            if total <= self.limit * _KEEP:
                break
            removed += _remove(path)
            total -= stat.st_size
        return removed

    def info(self) -> CacheInfo:
        """What is stored now."""
        sizes = [stat.st_size for _, stat in self._entries()]
        return CacheInfo(self.folder, len(sizes), sum(sizes))

    def clear(self) -> int:
        """Removes every entry and kept source, nothing else that may lie in the folder; gives how many entries."""
        removed = sum(_remove(path) for path, _ in self._entries())
        shutil.rmtree(self.folder / "failed", ignore_errors=True)
        return removed

    def _path(self, key: bytes) -> Path:
        name = self._digest(key).hex()
        return self.folder / "entries" / name[:2] / name[2:]

    def _check_folders(self, path: Path) -> None:
        """Those from the cache's to the entry's."""
        for folder in (self.folder, path.parent.parent, path.parent):
            check_private(folder)

    def _write(self, path: Path, blocks: Iterable[bytes]) -> None:
        temporary = self.folder / "tmp"
        for folder in (self.folder, path.parent.parent, path.parent, temporary):
            make_private(folder)
        handle, name = tempfile.mkstemp(prefix="entry-", dir=temporary)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(blocks)
            os.replace(name, path)
        except BaseException:
            _remove(Path(name))
            raise

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            shards = [shard.path for shard in os.scandir(self.folder / "entries")]
        except OSError:
            return
        for shard in shards:
            with contextlib.suppress(OSError), os.scandir(shard) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):  # somebody else has removed it
                        yield Path(entry.path), entry.stat()


def info(folder: Path | None = None) -> CacheInfo:
    """`mycc cache info`."""
    return Cache(folder).info()


def clear(folder: Path | None = None) -> int:
    """`mycc cache clear`; gives the number of removed entries."""
    return Cache(folder).clear()


_CHOOSE = "--cache-dir DIR or MYCC_CACHE_DIR chooses another folder for the cache."


def storage_error(error: OSError, folder: Path) -> CompileError:
    """What to tell the user when a file of the cache cannot be written."""
    reason = error.strerror or str(error)
    return CompileError(f"cannot write to the cache folder {folder}: {reason}", hint=_CHOOSE)


def _decode(data: bytes, key: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, key_size, value_size, checksum = _HEADER.unpack_from(data)
    start = _HEADER.size + key_size
    if magic != _MAGIC or len(data) != start + value_size or data[_HEADER.size : start] != key:
        return None
    if hashlib.sha256(memoryview(data)[_HEADER.size :]).digest() != checksum:
        return None
    return data[start:]


def _remove(path: Path) -> int:
    try:
        path.unlink()
    except OSError:
        return 0
    return 1
