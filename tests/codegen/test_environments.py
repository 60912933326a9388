"""Compiled templates are kept beside the templates, and are never older than their texts."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from mycc.compiler.codegen import environments


def rendered() -> str:
    """By an environment of a process that has none yet."""
    return environments.environment.__wrapped__("cpu").get_template("one.j2").render(n=3)


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environments, "TEMPLATES", tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (tmp_path / "cpu").mkdir()
    path = tmp_path / "cpu" / "one.j2"
    path.write_text("{{ n }} lanes")
    return path


def test_what_is_compiled_is_read_until_the_text_changes(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_text = jinja2.Environment.compile
    monkeypatch.setattr(
        jinja2.Environment, "compile", lambda *args, **how: compiled.append(args[2]) or compile_text(*args, **how)
    )
    assert [rendered(), rendered()] == ["3 lanes", "3 lanes"]
    template.write_text("{{ n }} rows")
    assert [rendered(), rendered()] == ["3 rows", "3 rows"]
    assert compiled == ["one.j2", "one.j2"]


def test_a_folder_that_cannot_be_written_is_done_without(template: Path) -> None:
    (template.parents[1] / "__pycache__").write_text("a file in its place")
    assert [rendered(), rendered()] == ["3 lanes", "3 lanes"]
