"""Whole small models through the command line: what a package of integers holds, and what it computes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest

from ..helpers.command_server import CommandServer

TARGET = "cpu:x86-64-v3"
#: by the file's name
SOURCES = {
    "floats.py": """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(64, 512), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 96)).eval()
example_inputs = (torch.arange(9) % 64,)
dynamic_shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
""",
    "images.py": """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)).eval()
example_inputs = (torch.randn(1, 3, 8, 8),)


def inputs():
    return [torch.randn(1, 3, 8, 8) for _ in range(3)]
""",
    "torchao_int4.py": """
from floats import *
import torchao.quantization as Q

config = Q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=Q.PerGroup(32))
Q.quantize_(model, config, lambda m, _: isinstance(m, (nn.Linear, nn.Embedding)))
""",
    "pt2e.py": """
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config as config,
)

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(64 * 16, 32)).eval()
example_inputs = (torch.randn(1, 3, 8, 8),)
prepared = prepare_pt2e(torch.export.export(net, example_inputs).module(), X86InductorQuantizer().set_global(config()))
prepared(*example_inputs)
model = torch.export.export(convert_pt2e(prepared), example_inputs)
""",
}
WEIGHTS = 64 * 512 + 512 * 1024 + 1024 * 96  # of floats.py
PT2E_WEIGHTS = 64 * 27 + 64 * 64 * 9 + 64 * 16 * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def compiled(server: CommandServer, folder: Path, source: str, *options: str) -> dict[str, Any]:
    done = server.mycc(
        "compile", source, "--out", "model.pkg", "--target", TARGET, "--json", *options, cwd=folder,
        env={"PYTHONPATH": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.mark.parametrize(
    ("options", "bits"), [("int8", 8.6), ("int4:group=64", 4.6), ("int8-dynamic", 8.6), ("fp8", 8.6)]
)
def test_models_of_floats(server: CommandServer, folder: Path, options: str, bits: float) -> None:
    facts = compiled(server, folder, "floats.py", "--quantize", options)
    assert facts["weights"]["size"] * 8 / WEIGHTS < bits
    (row,) = facts["quantization"]["entry_points"]
    assert [layer["name"] for layer in row["layers"]] == ["0", "1", "3"]
    assert row["error"] < {"int4:group=64": 0.2, "fp8": 0.08}.get(options, 0.02)
    ids = np.arange(5)
    (y,) = np.atleast_3d(mycc.load(folder / "model.pkg")(ids)).transpose(2, 0, 1)
    assert y.shape == (5, 96)
    assert np.isfinite(y).all()
    shown = server.mycc("inspect", "model.pkg", cwd=folder).stdout
    assert f"3 layers of forward are {options}" in shown


def test_a_model_of_torchao_keeps_its_four_bits(server: CommandServer, folder: Path) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    facts = compiled(server, folder, "torchao_int4.py")
    assert facts["weights"]["size"] * 8 / WEIGHTS < 5.2, "scales of float32 for 32 weights are a bit each"
    assert facts["quantization"] is None


def test_a_model_of_pt2e_holds_no_originals(server: CommandServer, folder: Path) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    facts = compiled(server, folder, "pt2e.py")
    assert facts["weights"]["size"] < 1.2 * PT2E_WEIGHTS


def test_a_package_is_verified_against_its_model(server: CommandServer, folder: Path) -> None:
    compiled(server, folder, "images.py", "--quantize", "int8", "--calibrate", "images:inputs")
    done = server.mycc("verify", "images.py", "model.pkg", cwd=folder, env={"PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "against float64" in done.stdout


def test_a_refusal_leaves_nothing_behind(server: CommandServer, folder: Path) -> None:
    done = server.mycc(
        "compile", "floats.py", "--quantize", "int4", "--max-error", "1e-5", "--out", "x.pkg", cwd=folder
    )
    assert done.returncode == 2
    assert "--quantize-skip" in done.stderr
    assert not (folder / "x.pkg").exists()


def test_check_says_what_would_be_quantised(server: CommandServer, folder: Path) -> None:
    done = server.mycc(
        "check", "floats.py", "--quantize", "int4", "--quantize-skip", "3", "--target", TARGET, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "quantised  2 layers to int4:group=32: 2.2 MB -> 0.3 MB" in done.stdout
    assert "3  left: skipped" in done.stdout
    found = re.search(r"reading +(\S+) ms a call at least, as floats (\S+) ms", done.stdout)
    assert found
    assert 0 < float(found[1]) < float(found[2]) / 6  # of the linear layer
