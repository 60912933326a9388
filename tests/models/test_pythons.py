"""Compiled packages in other Pythons, without mycc: imported from the package, which brings its own loader."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from ..helpers.pythons import interpreter
from . import feature_models

SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import features
ids = np.load(sys.argv[2])
np.save(sys.argv[3], features.load().entry("tied")(ids))
assert not any(name.split(".")[0] in ("mycc", "torch") for name in sys.modules)
"""


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_package_brings_its_own_loader(features: Path, version: str, tmp_path: Path) -> None:
    module, (ids,) = feature_models.tied_example()
    np.save(tmp_path / "ids.npy", ids.numpy())
    command = [interpreter(version), "-I", "-c", SCRIPT, features, tmp_path / "ids.npy", tmp_path / "out.npy"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = torch.from_numpy(np.load(tmp_path / "out.npy"))
    torch.testing.assert_close(found, module(ids).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_package_tells_what_it_is(features: Path, version: str) -> None:
    done = subprocess.run([interpreter(version), "-I", str(features)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("features: compiled by mycc ")
    assert "tied(ids: i64[batch, seq]) -> output: f32[batch, seq, 301]" in done.stdout
