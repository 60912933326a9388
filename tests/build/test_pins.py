"""Versions are pinned once, and their files by hash."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    return [line for line in (line.split("#")[0].strip() for line in text.splitlines()) if line]


def test_every_pinned_version_but_torch_has_its_hashes() -> None:
    pins = [line for line in lines("constraints.txt") if not line.startswith("torch==")]
    hashed = [
        re.fullmatch(r"(\S+==\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)", line)
        for line in lines("requirements-hashed.txt")
    ]
    assert all(hashed)
    assert [found[1] for found in hashed if found] == pins, "run .ci/hashes.py"
