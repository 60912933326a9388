"""What the pages say, for the tests: code blocks, links, and outputs with places left open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_GLOBS = ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/*.md", "compiler/*.md", "runtime/*.md", "kernels/*.md")
PAGES = sorted(path for pattern in _GLOBS for path in ROOT.glob(pattern))


class Block(NamedTuple):
    """A code block: its language ("" without), its text, the line that it starts in."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        yield Block(found[1], found[2], page.read_text()[: found.start()].count("\n") + 1)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(target, anchor) of every relative link; those in code are none."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for found in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        target, _, anchor = found[1].partition("#")
        if not re.match(r"[a-z]+:", found[1]):
            yield target, anchor


def fits(output: str, expected: str) -> bool:
    """Whether an output is as a page shows it: `...` stands for anything within a line, alone for any lines."""
    pattern = ""
    for line in expected.rstrip("\n").split("\n"):
        pattern += r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"[ ]*\n"
    return re.fullmatch(pattern, output.rstrip("\n") + "\n") is not None
