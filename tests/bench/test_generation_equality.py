"""bench/generation_equality.py: what is stored is what docs/generation.md shows, and no token is another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..helpers.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_shows_what_is_stored() -> None:
    pytest.importorskip("transformers")
    bench = load_script(ROOT / "bench/generation_equality.py")
    rows = json.loads(bench.STORED.read_text())
    page = bench.PAGE.read_text()
    assert bench.with_table(page, rows) == page
    for kind, row in rows.items():
        assert {row[name] for name in ("alone", "chunked", "paged", "ragged")} == {row["tokens"]} == {200}, kind
        assert row["distinct"] > 3, kind
