"""docs/performance.md and the table of the README are what bench/performance.py makes of the stored results."""

from __future__ import annotations

import copy
import json
import re
from datetime import date
from types import ModuleType

import pytest

from ..helpers.scripts import load_script
from .pages import ROOT


@pytest.fixture(scope="module")
def performance() -> ModuleType:
    return load_script(ROOT / "bench/performance.py")


def test_the_pages_are_what_the_results_say(performance: ModuleType) -> None:
    assert (ROOT / "docs/performance.md").read_text() == performance.page(), "run python bench/performance.py"
    text = (ROOT / "README.md").read_text()
    assert text == performance.readme(text), "run python bench/performance.py"
    assert performance.MARK in text


def test_every_result_has_its_day_machine_and_place(performance: ModuleType) -> None:
    page = (performance.RESULTS / "performance.md.in").read_text()
    for file in performance.RESULTS.glob("*.json"):
        result = json.loads(file.read_text())
        assert f"{{table {file.stem}}}" in page, file.name
        assert result["rows"], file.name
        for row in result["rows"]:
            assert date.fromisoformat(row["date"]), file.name
            assert row["machine"], file.name
            assert len(row["cells"]) == len(result["columns"]), file.name
        if result.get("notes"):
            assert f"{{notes {file.stem}}}" in page, file.name


def test_a_run_is_taken_over(performance: ModuleType) -> None:
    result = copy.deepcopy(performance.load("cpu-models"))
    figures = [
        ("speed", "bert, 1 thread, OpenVINO / mycc", 1.234), ("speed", "bert, 2 threads, ONNX Runtime / mycc", 1.5),
        ("speed", "bert, 1 thread, of the FMA roof", 91.0), ("speed", "geometric mean of 8 models, 1 thread", 1.111),
        ("decode", "gpt2, 1 thread, x / mycc", 9.0),
    ]  # fmt: skip
    run = {"date": "2030-01-02", "figures": [{"section": s, "name": n, "value": v} for s, n, v in figures]}
    performance.add(run, "Another CPU", result)
    row = result["rows"][-1]
    cells = dict(zip(result["columns"], row["cells"], strict=True))
    assert row["machine"] == "Another CPU"
    assert row["date"] == "2030-01-02"
    assert {name: text for name, text in cells.items() if text} == {"BERT-base": "1.23, 1.50", "geometric mean": "1.11"}
    assert re.search(
        r"^\| Another CPU \|.*\| 1\.23, 1\.50 \|.*\| 2030-01-02 \|$", performance.table(result), re.MULTILINE
    )
