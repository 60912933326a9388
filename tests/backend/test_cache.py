"""Compiled graphs are kept on disk by what they are made from; a second process compiles nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mycc.compiler.build.cache import info

from .support import compiled

PROGRAM = """
import sys, torch
from mycc.compiler.backend.backend import backend
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
function = torch.compile(model, backend=backend, options={"cache_dir": sys.argv[1], "build.flags": "-O0"})
x = torch.randn(3, 4)
function(x).sum().backward()
torch.testing.assert_close(function(x), model(x))
print(model[0].weight.grad.sum().item(), "mycc.compiler.pipeline" in sys.modules)
"""


def _run(folder: Path) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_a_second_process_finds_both_graphs(tmp_path: Path) -> None:
    first = _run(tmp_path)
    entries = info(tmp_path).entries
    second = _run(tmp_path)
    assert (first[1], second[1]) == ("True", "False")
    assert first[0] == second[0]
    assert info(tmp_path).entries == entries


@pytest.mark.parametrize(
    ("change", "found"),
    [({}, True), ({"schedule.fuse": False}, False), ({"cache": False}, False)],
    ids=["same", "other options", "no cache"],
)
def test_what_a_graph_is_found_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], found: bool
) -> None:
    from mycc.compiler.backend import compile as compile_module

    x, made = torch.randn(3, 4), []
    original = compile_module._package

    def package(*args: object) -> bytes:
        made.append(1)
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(compile_module, "_package", package)
    for options in ({}, change):
        function = compiled(lambda x: x.sin() + 1, options={"cache_dir": str(tmp_path), **options})
        torch.testing.assert_close(function(x), x.sin() + 1)
    assert len(made) == (1 if found else 2)
