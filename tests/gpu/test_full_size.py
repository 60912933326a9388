"""The zoo of bench/ at its full sizes, with dynamic batch and sequence, for three GPUs on a machine that has none."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import mycc
import pytest

from ..models import small_zoo

pytestmark = pytest.mark.slow
TARGETS = ("cuda:sm_80", "cuda:sm_90", "cuda:sm_100")
LARGEST = 5e6  # bytes of everything but the weights, for each target


@pytest.mark.parametrize("name", small_zoo.NAMES)
def test_builds_for_three_gpus(zoo: Any, name: str, tmp_path: Path) -> None:
    entry = zoo.ZOO[name]
    package = mycc.compile(
        entry.build(), entry.inputs(2), dynamic_shapes=entry.dynamic_shapes(), out=tmp_path / "model.pkg",
        target=",".join(TARGETS), dtype="bf16",
    )  # fmt: skip
    with zipfile.ZipFile(package) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    launches = manifest["entry_points"][0]["launches"]
    assert tuple(launches) == TARGETS
    for rows in launches.values():
        assert all(row["spills"] == 0 for row in rows), [row["name"] for row in rows if row["spills"]]
    assert package.stat().st_size - manifest["weights"]["size"] <= LARGEST * len(TARGETS)
