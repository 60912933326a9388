"""The working folder of one build, under the cache's folder; what killed builds leave there is swept away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .cache import storage_error
from .private import make_private

__all__ = ["keep_failed", "workspace"]

_LOCK = ".lock"
_STALE_AFTER = 600.0  # seconds; a younger folder may not have its lock yet
_KEEP_FAILED = 8


@contextlib.contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """A fresh folder under root/tmp, removed at the end whatever happens.

    The folder's lock file is locked as long as this process lives: that is how others know a folder left behind.

    Raises:
        CompileError: the folder cannot be made, or others may write to it.
    """
    parent = root / "tmp"
    try:
        make_private(root)
        make_private(parent)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix="build-", dir=parent))
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise storage_error(error, root) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def keep_failed(root: Path, folder: Path, name: str) -> Path:
    """Moves a working folder to root/failed/name, where the last few are kept; gives the new place."""
    kept = root / "failed" / name
    try:
        shutil.rmtree(kept, ignore_errors=True)
        make_private(kept.parent)
        os.replace(folder, kept)
        (kept / _LOCK).unlink(missing_ok=True)
        older = sorted(kept.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError as error:
        raise storage_error(error, root) from error
    for path in older[_KEEP_FAILED:]:
        shutil.rmtree(path, ignore_errors=True)
    return kept


def _sweep(parent: Path) -> None:
    """Removes what killed processes left: unlocked working folders and half-written entries."""
    oldest = time.time() - _STALE_AFTER
    for entry in os.scandir(parent):
        with contextlib.suppress(OSError):  # gone by now, or not ours to remove
            if entry.stat(follow_symlinks=False).st_mtime > oldest:
                continue
            if entry.name.startswith("entry-"):
                os.unlink(entry.path)
            elif entry.name.startswith("build-"):
                _remove_unlocked(Path(entry.path))


def _remove_unlocked(folder: Path) -> None:
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: its build still runs
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
