"""Folders and files that nobody else may write to: what is compiled and run later comes from them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ...runtime.errors import CompileError

__all__ = ["check_private", "make_private", "read_private"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_private(folder: Path) -> None:
    """Makes a folder with mode 0700, and those above it that are missing; one that is there is checked.

    Raises:
        OSError: it cannot be made.
        CompileError: see check_private.
    """
    if not folder.parent.is_dir():
        make_private(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        check_private(folder)


def check_private(folder: Path) -> None:
    """Does nothing when the folder is not there.

    Raises:
        CompileError: it belongs to another user, or others may write to it.
    """
    try:
        about = folder.stat()
    except OSError:
        return
    _check(about, f"the cache folder {folder}", f"Run `chmod go-w {folder}`")


def read_private(file: Path) -> bytes | None:
    """The contents of a regular file; None when there is none.

    Raises:
        CompileError: it belongs to another user, or others may write to it.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as opened:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return None
        _check(about, f"the cache entry {file}", "Remove it")
        return opened.read()


def _check(about: os.stat_result, what: str, remedy: str) -> None:
    """what: the folder or entry, for the message."""
    if about.st_uid != os.geteuid():
        raise CompileError(
            f"{what} belongs to another user (number {about.st_uid}), who could put code there", hint=_CHOOSE
        )
    if about.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(about.st_mode)
        raise CompileError(
            f"other users may write to {what} (mode {mode:04o}), and could put code there",
            hint=f"{remedy}. {_CHOOSE}",
        )


_CHOOSE = "--cache-dir DIR or MYCC_CACHE_DIR chooses another folder for the cache."
