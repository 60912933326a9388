"""`mycc doctor`: what is there, what is missing and how to mend it, without importing torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mycc.compiler import doctor as module


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mycc.cli", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=60)


def test_this_machine_can_compile(tmp_path: Path) -> None:
    done = run("--json", "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout
    states = {row["name"]: row["state"] for row in json.loads(done.stdout)["findings"]}
    assert states["torch"] == states["C++ compiler"] == states["libmycc.so"] == "ok"
    assert states["GPU"] in ("ok", "off")


def test_a_missing_compiler_comes_with_the_command_that_installs_it(tmp_path: Path) -> None:
    program = tmp_path / "dnf"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = run("--cache-dir", str(tmp_path / "cache"), PATH=str(tmp_path), CXX="")
    assert done.returncode == 1
    assert "MISSING C++ compiler" in done.stdout
    assert "to mend: sudo dnf install gcc-c++" in done.stdout
    assert done.stdout.rstrip().endswith("mycc can run packages here, not compile.")


def test_an_old_torch_and_a_missing_module_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import importlib.metadata

    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "sympy":
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.9.1+cpu" if name == "torch" else known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = {f.name: f for f in module.doctor(tmp_path)}
    assert (found["torch"].state, found["sympy"].state) == ("missing", "missing")
    assert "2.9.1+cpu is too old: 2.11 or later" in found["torch"].text
    assert "[compiler]" in found["sympy"].fix


def test_nothing_heavy_is_imported() -> None:
    code = "import sys; from mycc.compiler.doctor import doctor; doctor(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
