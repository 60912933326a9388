"""Which of the project's own headers a translation unit includes: the part of its text that stands in other files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["INCLUDE_FOLDERS", "Headers"]

_ROOT = Path(__file__).resolve().parents[2]
#: of the ABI and of the kernels: headers are "mycc/abi.h" and "kernels/gemm/gemm.h"
INCLUDE_FOLDERS = (_ROOT / "runtime" / "include", _ROOT)
_OWN = ("mycc", "kernels")

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?\b[ \t]*([^\n]*)", re.MULTILINE)
_NAME = re.compile(r'"([^"]+)"|<([^>]+)>')


class Headers:
    """The headers of a build: generated ones first, then those of the project.

    Every header is read once, and compiled from the text that was read here: keys and objects cannot disagree.
    """

    def __init__(self, generated: Mapping[str, str], folders: Sequence[Path] = INCLUDE_FOLDERS) -> None:
        self._texts: dict[str, str | None] = dict(generated)
        self._folders = folders
        self._direct: dict[str, tuple[str, ...]] = {}

    def of(self, source: str) -> dict[str, str]:
        """Path below the include folder -> text of every header that `source` includes, directly or not, whatever the
        conditions around the #include lines; sorted by path. System headers belong to the compiler and are left out."""
        found: dict[str, str] = {}
        waiting = list(self._included("", source))
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            found[path] = self._texts[path] or ""
            if path not in self._direct:
                self._direct[path] = tuple(self._included(path, found[path]))
            waiting += self._direct[path]
        return dict(sorted(found.items()))

    def _included(self, includer: str, text: str) -> Iterator[str]:
        for match in _INCLUDE.finditer(text):
            name = _NAME.match(match.group(1))
            if name is None:  # a macro: it could be any of them
                yield from self._all()
                continue
            quoted, angled = name.groups()
            beside = posixpath.join(posixpath.dirname(includer), quoted) if quoted else None
            for path in (beside, quoted or angled):
                if path is not None and self._text(path := posixpath.normpath(path)) is not None:
                    yield path
                    break

    def _all(self) -> Iterator[str]:
        for folder in self._folders:
            for file in (f for own in _OWN for f in (folder / own).rglob("*.h")):
                self._text(file.relative_to(folder).as_posix())
        yield from [path for path, text in self._texts.items() if text is not None]

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            files = (folder / path for folder in self._folders if path.split("/")[0] in _OWN)
            self._texts[path] = next((file.read_text() for file in files if file.is_file()), None)
        return self._texts[path]
