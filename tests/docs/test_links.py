"""Every link of the pages leads somewhere, and every page can be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, links

DECISIONS = ROOT / "docs/decisions"


def test_every_link_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target, _ in links(page)
        if target and not (page.parent / target).exists()
    ]
    assert not broken


def test_the_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:[\w.]+/)*\w+(?:\.cpp)?\.(?:py|h|cpp|j2))`", text))
    written = {"block.py", "kernels_0.cpp", "program.cpp"}  # by the reader, and by the compiler
    folders = ("compiler", "kernels", "runtime", "templates", "tests", "docs", "bench")
    found = [*ROOT.glob("*.py"), *(path for folder in folders for path in (ROOT / folder).rglob("*.*"))]
    files = [f"/{path.relative_to(ROOT)}" for path in found]
    assert len(named) > 50
    assert not [name for name in named - written if not any(path.endswith("/" + name) for path in files)]


def test_every_document_stands_in_the_index_and_in_the_site() -> None:
    listed = {target for target, _ in links(ROOT / "docs/index.md")}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= listed
    site = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert pages <= site
    assert all((ROOT / "docs" / name).exists() for name in site)


def test_every_decision_has_a_topic() -> None:
    topics = (DECISIONS / "by-topic.md").read_text().partition("\n## Superseded")[0]
    named = re.findall(r"\]\((\d{4}-[^)]+)\)", topics)
    assert sorted(named) == sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))


@pytest.mark.parametrize("page", sorted(DECISIONS.glob("[0-9]*.md")), ids=lambda page: page.name[:4])
def test_every_decision_begins_with_what_was_decided_and_why(page: Path) -> None:
    """Under the title stands one paragraph in plain words, with its reason, and then a heading or another block."""
    title, first, *_ = page.read_text().split("\n\n")
    assert title.startswith(f"# {page.name[:4]}: ")
    assert re.match(r"[A-Z0-9m`]", first), f"begins with {first[:30]!r}"  # no heading, list, table or bold word; mycc
    assert re.search(r"\b(because|so\s+that)\b", first), "does not say why"
    assert len(first.split()) <= 60


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in DECISIONS.glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


def test_superseded_decisions_say_so_on_both_pages() -> None:
    rows = (DECISIONS / "by-topic.md").read_text().partition("\n## Superseded")[2]
    listed = set(re.findall(r"^\| \[(\d{4})\]", rows, re.MULTILINE))
    said = re.compile(r"^Superseded ", re.MULTILINE)
    saying = {path.name[:4] for path in DECISIONS.glob("[0-9]*.md") if said.search(path.read_text())}
    assert listed == saying


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_nobody_is_told_to_install_the_foreign_distribution() -> None:
    files = [*PAGES, *(p for folder in ("compiler", "runtime", "examples") for p in (ROOT / folder).rglob("*.py"))]
    told = [p for p in files if re.search(r"pip install (-\S+ )*['\"]?mycc(?!_aot)\b(?!-aot)", p.read_text())]
    assert not told


def test_links_in_code_do_not_count(tmp_path: Path) -> None:
    page = tmp_path / "p.md"
    page.write_text("[a](b.md#c) `[x](y)`\n```\n[no](no.md)\n```\n[web](https://example.org)\n")
    assert list(links(page)) == [("b.md", "c")]
