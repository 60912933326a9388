"""The tutorial and the README's quick start, run as they are printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT, Block, blocks, fits

BIN = str(Path(sys.executable).parent)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=300)


def mycc(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    assert words[0] == "mycc"
    return run([sys.executable, "-m", "mycc", *words[1:]], folder)


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    page = list(blocks(ROOT / "docs/tutorial.md"))
    (tmp_path / "digits.py").write_text(next(b.text for b in page if b.language == "python"))
    session = ""
    shown = ""
    for block in page[1:]:
        if block.language == "console":
            command, _, expected = block.text.partition("\n")
            done = mycc(shlex.split(command.removeprefix("$ ")), tmp_path)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert fits(done.stdout, expected), f"line {block.line}: {command}\n{done.stdout}"
        elif block.language == "python":
            session += block.text
            done = run([sys.executable, "-c", session], tmp_path)
            assert done.returncode == 0, done.stderr
            shown, before = done.stdout, shown
            printed = shown.removeprefix(before)
        elif block.language == "output":
            assert fits(printed, block.text), f"line {block.line}:\n{printed}"


def readme(language: str) -> list[Block]:
    text = (ROOT / "README.md").read_text()
    start = text[: text.index("## Quick start")].count("\n")
    end = text[: text.index("## What it does")].count("\n")
    return [b for b in blocks(ROOT / "README.md") if b.language == language and start < b.line < end]


@pytest.mark.slow
def test_the_quick_start_of_the_readme_works(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = [shlex.split(line, comments=True) for block in readme("") for line in block.text.splitlines()]
    assert len(commands) >= 5
    for words in commands:
        done = mycc(words, tmp_path)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    for block in readme("python"):
        done = run([sys.executable, "-c", block.text], tmp_path)
        assert done.returncode == 0, done.stderr
    assert "forward(input: f32[batch, 512]) -> output: f32[batch, 10]" in done.stdout
