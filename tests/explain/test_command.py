"""`mycc explain` on the command line: packages and sources, its files, and what it refuses before the work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def explain(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mycc", "explain", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=240)


def test_a_package_becomes_a_page_and_files_for_other_tools(package: Path, tmp_path: Path) -> None:
    done = explain(tmp_path, str(package), "--out", "r.html", "--trace", "t.json", "--dot", "g.dot", "--size", "rows=7")
    assert done.returncode == 0, done.stderr
    assert "r.html: open it in a browser" in done.stdout
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (tmp_path / "g.dot").read_text().startswith('digraph "forward"')
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.dot", "r.html", "t.json"]


def test_json_alone_is_all_of_standard_output(package: Path, tmp_path: Path) -> None:
    done = explain(tmp_path, str(package), "--json")
    assert json.loads(done.stdout)["schema"] == "mycc.explain/1"
    assert not list(tmp_path.iterdir())


def test_a_model_is_compiled_first_and_leaves_its_page_alone(source: Path, tmp_path: Path) -> None:
    done = explain(tmp_path, str(source), "--quiet", "--json", "report.json")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["sources"][0]["state"] == "same"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.pkg",), "cannot read nowhere.pkg"),
        (("net.onnx.pkg", "--out", "no/such/folder/r.html"), "no/such/folder"),
        (("a.pkg", "--dtype", "bf16"), "--dtype"),
        (("a.pkg", "--size", "rows"), "does not set a size"),
    ],
)
def test_refusals(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = explain(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
