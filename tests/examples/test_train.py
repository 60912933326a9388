"""examples/train: the command compiles it, a process without torch trains it to 97 %, and resumes it to the bit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train"
pytest.importorskip("sklearn")


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow  # test_digits trains by the command, tests/training/test_lora.py trains adapters
def test_adapters(tmp_path: Path) -> None:
    package, adapters = str(tmp_path / "lora.pkg"), str(tmp_path / "adapters.safetensors")
    run("-m", "mycc", "compile", str(EXAMPLE / "lora.py"), "--train", "--out", package)
    told = run("-X", "importtime", str(EXAMPLE / "train_lora.py"), package, "--save", adapters)
    assert not re.search(r"\btorch\b", told)
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", told)]
    assert losses[-1] < 0.6 * losses[0]


def test_digits(tmp_path: Path) -> None:
    package, whole, half = (str(tmp_path / name) for name in ("digits.pkg", "whole.safetensors", "half.safetensors"))
    run("-m", "mycc", "compile", str(EXAMPLE / "digits.py"), "--train", "--out", package)
    script = str(EXAMPLE / "train.py")
    told = run("-X", "importtime", script, package, "--epochs", "20", "--save", whole)
    assert not re.search(r"\btorch\b", told)
    accuracy = float(re.findall(r"accuracy ([\d.]+)%", told)[-1])
    assert accuracy >= 97.0
    run(script, package, "--epochs", "20", "--stop", "8", "--save", half)
    resumed = str(tmp_path / "resumed.safetensors")
    run(script, package, "--epochs", "20", "--resume", half, "--save", resumed)
    assert Path(resumed).read_bytes() == Path(whole).read_bytes()
