"""The examples compile as they stand, and the C and C++ ones run what came out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import mycc
import mycc.runtime._binding
import pytest
import torch

from ..helpers.command_server import CommandServer
from .support import ROOT, compiled

EXAMPLES = ROOT / "examples"
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("resnet50", "bert", "gpt2")]


@pytest.fixture(scope="module")
def mlp(server: CommandServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mlp") / "mlp.pkg"
    return compiled(server.mycc("compile", EXAMPLES / "mlp.py", "--out", out), out)


@pytest.mark.parametrize("name", ["cnn", *SLOW])
def test_examples(server: CommandServer, name: str, tmp_path: Path) -> None:
    out = tmp_path / f"{name}.pkg"
    done = server.mycc("compile", EXAMPLES / f"{name}.py", "--out", out)
    compiled(done, out)
    assert "against float64" in done.stdout
    assert server.mycc("verify", out).returncode == 0
    assert server.mycc("run", out, "--size", "batch=3").returncode == 0


def test_the_mlp_serves_every_batch(mlp: Path) -> None:
    model = mycc.load(mlp)
    rows = torch.randn(9, 512)
    whole = model(rows)
    assert all(
        torch.equal(model(rows[:n]), whole[:n]) or torch.allclose(model(rows[:n]), whole[:n]) for n in range(1, 9)
    )


@pytest.mark.parametrize(
    ("language", "program", "arguments", "said"),
    [
        ("c", "run_package", ["batch=2"], "output [2, 10]"),
        ("cpp", "serve_package", ["3", "50"], "150 calls by 3 threads"),
    ],
)
def test_programs(mlp: Path, language: str, program: str, arguments: list[str], said: str, tmp_path: Path) -> None:
    """Built with cmake against the installed headers and library."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not on PATH")
    installed = Path(mycc.runtime._binding.__file__).parent / "cmake"  # in the installation, editable or not
    build = tmp_path / "build"
    for step in (["-S", EXAMPLES / language, "-B", build, f"-Dmycc_DIR={installed}"], ["--build", build]):
        done = subprocess.run([cmake, *map(str, step)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    ran = subprocess.run([build / program, mlp, *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout
