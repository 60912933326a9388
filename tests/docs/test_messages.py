"""docs/troubleshooting.md quotes messages: each is one that the sources can print."""

from __future__ import annotations

import ast
import re
from functools import cache

from .pages import ROOT

PAGE = ROOT / "docs/troubleshooting.md"
#: what stands in a quoted message for what differs from case to case
VARYING = (
    r"\.\.\.|'[^']*'|`[^`]*`|\[[^\]]*\]|\([^)]*\)|\b\w+\.\w[\w.]*(?:/\S*)?|\S*/\S+|\b\w+:|\b[\d.]+\b|\bN\b|[^\w\s$,:-]"
)


def quoted() -> list[str]:
    """The messages of the page's tables, in code."""
    cells = [line.split(" | ")[0][2:] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [message for cell in cells for message in re.findall(r"`((?:looked for `\w+` or `[^`]+`|[^`])+)`", cell)]


@cache
def literals() -> str:
    """Every text of the sources, pieces of formatted ones and of adjacent ones joined."""
    found: list[str] = []
    for folder in ("compiler", "runtime", "commands"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    found.append(_text(node))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    for path in [*(ROOT / "runtime").rglob("*.cpp"), *(ROOT / "runtime").rglob("*.h")]:
        found += [
            _native(m[0]) for m in re.finditer(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*', path.read_text())
        ]
    return "\n".join(found)


def _text(node: ast.JoinedStr) -> str:
    return "".join(str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values)


def _native(text: str) -> str:
    joined = re.sub(r'"\s*"', "", text).strip('"').replace('\\"', '"').replace("\\n", "\n")
    return re.sub(r"%[-\d.]*(?:ll|z)?[a-zA-Z]", "\0", joined)


@cache
def forms() -> list[tuple[re.Pattern[str], int]]:
    """The formatted texts, as patterns of what they can print, with how many letters of it are fixed."""
    rows = [line.split("\0") for line in set(literals().split("\n")) if "\0" in line]
    return [(re.compile("[^\\n]+?".join(map(re.escape, parts))), sum(map(len, parts))) for parts in rows]


def formed(run: str, message: str) -> bool:
    """Whether some formatted text prints these words: it fits the message, and most of the words are its own."""
    return any(2 * letters > len(run) and form.search(message) for form, letters in forms())


def fixed(message: str) -> list[str]:
    """The runs of words of a message that do not differ from case to case."""
    runs = [" ".join(run.split()).strip(",: ") for run in re.split(VARYING, message)]
    return [run for run in runs if len(run.split()) > 1]


def test_the_page_quotes_messages() -> None:
    assert len(quoted()) > 60


def test_quoted_messages_are_in_the_sources() -> None:
    missing = [
        (message, run)
        for message in quoted()
        for run in fixed(message)
        if run not in literals() and not formed(run, message)
    ]
    assert not missing, "no source says this"


def test_a_message_that_is_none_is_found_out() -> None:
    assert fixed("features: dimension 1 is 511, the package was made for 512") == ["the package was made for"]
    assert "the package was made for" not in literals()
    assert not formed("the package was made for", "features: dimension 1 is 511, the package was made for 512")
