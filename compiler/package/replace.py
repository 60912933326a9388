"""A file that appears under its name only when it is whole."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...runtime.errors import CompileError
from ...runtime.files import check_regular

__all__ = ["check_replaceable", "flushed_beside", "whole_file"]

_serial = itertools.count()


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, which takes the place of `path` when the block ends well.

    Until then `path` is what it was. The new file has no name while it is written (O_TMPFILE), so that a killed process
    leaves nothing behind; where the file system has no such files it is `.<name>.<process>.<n>.part` in the same
    folder, and those of dead processes are removed by the next writer.

    The bytes are on the disk before the file takes its place, so that a power cut leaves the old one or the new one.

    Raises:
        CompileError: the folder cannot be written, the disk is full, or `path` is something else than a file.
    """
    path = Path(os.path.realpath(path))
    check_replaceable(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.{next(_serial)}.part")
    try:
        _remove_leftovers(path)
        descriptor, named = _create(part)
        try:
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
                if not named:
                    _link(descriptor, part)
            os.replace(part, path)
            _sync_folder(path.parent)
        except BaseException:
            with suppress(FileNotFoundError):
                part.unlink()
            raise
    except OSError as error:
        raise CompileError(f"cannot write {path}: {_reason(error, path)}") from error


@contextmanager
def flushed_beside(file: BinaryIO) -> Iterator[None]:
    """What the file has so far goes to the disk while the block runs, so that its end waits for less.

    Raises:
        OSError: it cannot be written; after the block, as the system tells it once.
    """
    file.flush()
    errors: list[OSError] = []

    def flush() -> None:
        try:
            os.fsync(file.fileno())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=flush, name="mycc flush")
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]


def check_replaceable(path: Path) -> None:
    """Raises CompileError when there is something at `path` that a new file must not replace: a folder, a device, a
    FIFO."""
    try:
        check_regular(path)
    except IsADirectoryError:
        raise CompileError(f"cannot write {path}: it is a folder", hint=_NAME) from None
    except OSError as error:
        raise CompileError(f"cannot write {path}: {error.strerror}", hint=_NAME) from None


_NAME = "Give the name of a file to --out."


def _sync_folder(folder: Path) -> None:
    """The file's name, too, is on the disk; some file systems cannot do that for a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(part: Path) -> tuple[int, bool]:
    """A descriptor to write to, and whether the file has the name `part` already."""
    if os.path.isdir("/proc/self/fd"):
        with suppress(OSError):
            return os.open(part.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666), False
    return os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666), True


def _link(descriptor: int, part: Path) -> None:
    folder = os.open(part.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:  # dst_dir_fd makes this linkat(), which follows the link in /proc
        os.link(f"/proc/self/fd/{descriptor}", part.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _remove_leftovers(path: Path) -> None:
    for part in path.parent.glob(f".{path.name}.*.part"):
        process = part.name.removeprefix(f".{path.name}.").split(".")[0]
        if process.isdigit() and not os.path.isdir(f"/proc/{process}"):
            part.unlink(missing_ok=True)


def _reason(error: OSError, path: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; what was there before is unchanged"
    if error.errno == errno.ENOENT:
        return f"the folder {path.parent} does not exist"
    return error.strerror or str(error)
