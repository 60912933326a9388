"""Every link of the pages leads somewhere, and every page can be found."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_every_decision_begins_with_what_was_decided() -> None:
    """A paragraph in plain words stands between the title and the first heading."""
    bare = [path.name for path in DECISIONS.glob("[0-9]*.md") if path.read_text().split("\n")[2].startswith("#")]
    assert not bare


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
