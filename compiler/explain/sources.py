"""The lines of the user's files, found on this machine and compared with what was compiled."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Sources"]

_WHOLE = 200_000  # bytes of a file that is shown whole; of a longer one what lies around the lines that are named
_AROUND = 12


class Sources:
    """The files that src/model.json names.

    folders: where the user's files are looked for; those of libraries are where Python keeps them.
    """

    def __init__(self, files: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> None:
        self._files = files
        self._folders = list(dict.fromkeys(folders))

    def rows(self, entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """For each file name, user (of the user's own, not a library's), state ("same", "changed" since it was
        compiled, or "missing"), and parts: [first line, text] of what is shown."""
        lines = _named_lines(entries)
        return [self._row(i, file, lines.get(i, set())) for i, file in enumerate(self._files)]

    def _row(self, number: int, file: Mapping[str, Any], lines: set[int]) -> dict[str, Any]:
        text, state = self._read(file)
        return {"name": file["name"], "user": file["user"], "state": state,
                "parts": [] if text is None else _parts(text, lines)}  # fmt: skip

    def _read(self, file: Mapping[str, Any]) -> tuple[str | None, str]:
        """The first file with the right hash; else the first of that name among the user's."""
        paths = sysconfig.get_paths()
        folders = self._folders if file["user"] else [Path(paths[key]) for key in ("purelib", "platlib", "stdlib")]
        other: str | None = None
        for folder in folders:
            try:
                data = (folder / file["name"]).read_bytes()
                text = data.decode()
            except (OSError, UnicodeDecodeError):
                continue
            if hashlib.sha256(data).hexdigest() == file["sha256"]:
                return text, "same"
            other = other if other is not None else text
        return other, "missing" if other is None else "changed"


def _named_lines(entries: Iterable[Mapping[str, Any]]) -> dict[int, set[int]]:
    """File -> the lines that nodes come from."""
    found: dict[int, set[int]] = {}
    for entry in entries:
        for node in (entry["graph"] or {"nodes": []})["nodes"]:
            for file, line in node.get("places", []):
                found.setdefault(file, set()).add(line)
    return found


def _parts(text: str, lines: set[int]) -> list[list[Any]]:
    rows = text.splitlines()
    if len(text) <= _WHOLE:
        return [[1, text]]
    wanted = sorted({n for line in lines for n in range(max(1, line - _AROUND), min(len(rows), line + _AROUND) + 1)})
    parts: list[list[Any]] = []
    for n in wanted:
        if parts and parts[-1][0] + len(parts[-1][1]) == n:
            parts[-1][1].append(rows[n - 1])
        else:
            parts.append([n, [rows[n - 1]]])
    return [[first, "\n".join(part) + "\n"] for first, part in parts]
