"""Regular files: whatever else has a name in a folder is not opened, as a FIFO would wait for its other side."""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["check_regular", "open_regular"]


def open_regular(path: str | os.PathLike[str]) -> int:
    """The descriptor of a regular file, to read; who calls closes it.

    Raises:
        OSError: there is none, it cannot be read, or it is a folder, FIFO or device; strerror says which.
        ValueError: the path has a NUL.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raises OSError where a file that is written to `path` would meet something else: a folder, FIFO or device."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    _check(mode)


def _check(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
