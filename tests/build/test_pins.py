"""Versions are pinned once, and their files by hash."""

from __future__ import annotations

import contextlib
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_every_library_that_an_extra_installs_has_a_version() -> None:
    """Those that are installed here, and what they need; an extra whose libraries are not is passed over."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {line.split("==")[0] for line in lines("constraints.txt")}
    wanted = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    pending, seen, free = [Requirement(text) for text in wanted], set[str](), set[str]()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen or name == canonicalize_name(project["name"]):
            continue
        seen.add(str(requirement))
        free |= {name} - pins
        with contextlib.suppress(PackageNotFoundError):
            for text in distribution(name).requires or ():
                inner = Requirement(text)
                extras = requirement.extras or {""}
                if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                    pending.append(inner)
    assert not free, "constraints.txt lacks them; then run .ci/hashes.py"
