"""The pages of the project and their links, for the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_GLOBS = ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/*.md", "compiler/*.md", "runtime/*.md", "kernels/*.md")
PAGES = sorted(path for pattern in _GLOBS for path in ROOT.glob(pattern))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(target, anchor) of every relative link; those in code are none."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for found in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        target, _, anchor = found[1].partition("#")
        if not re.match(r"[a-z]+:", found[1]):
            yield target, anchor
