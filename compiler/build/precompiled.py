"""The header that every unit of kernels begins with, precompiled by GCC and kept in the cache.

    kernels/math/math.h        half of the compile of a small unit is spent on its text
    kernels/math/math.h.gch    GCC takes this one for it, where it lies beside it and fits the options

An object is the same, byte for byte, with it and without it: so it is no part of an object's key, and it is made when
it pays. The first build that misses it leaves a note; the next one makes it beside its own units, for those that
follow.
Only GCC looks for such files by itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cache import Cache, encode_key

__all__ = ["HEADER", "Precompiled", "remove_header"]

HEADER = "kernels/math/math.h"
#: while it is written: GCC must not find half a file
_MADE = "precompiled.out"
_FAST = 1  # of zlib: a sixth of 12 MB, in a tenth of a second


@dataclass(frozen=True)
class Precompiled:
    """The precompiled header of one command.

    command: that of units, up to the flags; identity: of what compiles, and for what version of mycc; headers: path ->
    text of all that the header is made of, itself among them.
    """

    cache: Cache
    command: Sequence[str]
    identity: Sequence[tuple[str, str]]
    headers: Mapping[str, str]

    @property
    def making(self) -> list[str]:
        """The command that makes it, in a folder where the headers lie."""
        return [*self.command, "-I.", "-x", "c++-header", HEADER, "-o", _MADE]

    def place(self, folder: Path) -> bool:
        """Puts it beside the header; False where the cache has none."""
        if (stored := self.cache.get(self._key("header"))) is None:
            return False
        _place(folder).write_bytes(zlib.decompress(stored))
        return True

    def is_worth_making(self) -> bool:
        """Whether a build missed it before; leaves the note for the next one."""
        note = self._key("missed")
        if self.cache.get(note) is not None:
            return True
        self.cache.put(note, b"once")
        return False

    def keep(self, folder: Path) -> None:
        """Stores what the command made."""
        self.cache.put(self._key("header"), zlib.compress((folder / _MADE).read_bytes(), _FAST))

    def _key(self, what: str) -> bytes:
        texts = [(f"header {path}", text) for path, text in self.headers.items()]
        return encode_key([*self.identity, ("precompiled", what), ("command", "\0".join(self.making)), *texts])


def remove_header(folder: Path) -> bool:
    """Takes the precompiled header out of a build's folder; whether it was there."""
    place = _place(folder)
    there = place.exists()
    place.unlink(missing_ok=True)
    return there


def _place(folder: Path) -> Path:
    return folder / f"{HEADER}.gch"
