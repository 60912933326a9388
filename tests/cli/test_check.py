"""`mycc check`: what it finds in seconds, its exit codes, and that it promises what compile makes."""

from __future__ import annotations

import json
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.api import compile_entries
from mycc.compiler.check import CheckReport, EntryReport, check
from mycc.compiler.options import CompileOptions
from torch import nn

from ..helpers.command_server import CommandServer
from ..models.support import ROOT

BROKEN = """
import torch

@torch.library.custom_op("check_test::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@mystery.register_fake
def _(x):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x, n):
        a = torch.ops.check_test.mystery(x)
        b = torch.ops.check_test.mystery(a + 1)
        return a + b, n.view(4, 2)

model = Model()
example_inputs = (torch.ones(3), torch.ones(8))
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    (tmp_path / "broken.py").write_text(BROKEN)
    return tmp_path


def test_a_good_model(server: CommandServer, tmp_path: Path) -> None:
    done = server.mycc("check", ROOT / "examples" / "mlp.py", "--target", "cpu:x86-64-v3,cuda:sm_90", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "compiles for cpu:x86-64-v3, cuda:sm_90" in done.stdout
    assert "batch: 1..1024, from dimension 0 of " in done.stdout
    assert "gemm_" in done.stdout
    assert not list(tmp_path.iterdir())


def test_all_unsupported_operators_are_listed_with_their_lines(server: CommandServer, broken: Path) -> None:
    done = server.mycc("check", "broken.py", cwd=broken)
    assert done.returncode == 1
    assert "does NOT compile" in done.stdout
    assert "broken.py:14" in done.stdout
    assert "broken.py:15" in done.stdout
    assert done.stderr == ""


def test_a_specialised_dimension_names_its_line_in_json(server: CommandServer, broken: Path) -> None:
    done = server.mycc("check", "broken.py", "--dynamic", "n:0=rows(2..64)", "--json", cwd=broken)
    assert done.returncode == 1
    facts = json.loads(done.stdout)
    assert facts["ok"] is False
    (problem,) = facts["problems"]
    assert problem["stage"] == "capture"
    assert any("broken.py:16" in line for line in problem["details"])


def test_wrong_arguments_are_errors_not_findings(server: CommandServer, broken: Path) -> None:
    done = server.mycc("check", "missing.py", cwd=broken)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no file 'missing.py'" in done.stderr


def test_one_bad_entry_point_does_not_hide_another(tmp_path: Path) -> None:
    good, bad = nn.Linear(4, 4).eval(), nn.Linear(4, 4).eval()
    dims = {"input": {0: torch.export.Dim("n", min=1, max=9)}}
    entries = compile_entries({"good": (good, (torch.ones(2, 4),)), "bad": (bad, (torch.ones(2, 5),), None, dims)})
    report = check(entries, CompileOptions())
    assert [entry.name for entry in report.entries] == ["good"]
    assert [(problem.entry, problem.stage) for problem in report.problems] == [("bad", "capture")]


def test_the_kernels_are_those_of_the_package(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).eval(), torch.randn(4, 8)
    report = check(compile_entries(model, x), CompileOptions())
    rows = mycc.load(mycc.compile(model, x, out=tmp_path / "m.pkg")).manifest["entry_points"][0]["kernels"]
    (entry,) = report.entries
    assert [row["key"] for row in entry.row["kernels"]] == [row["key"] for row in rows]
    assert [row["sources"] for row in entry.row["kernels"]] == [row["sources"] for row in rows]
    assert entry.kernels == {"cpu": len(rows)}
    assert entry.weights == sum(p.numel() * 4 for p in model.parameters())


def test_json_has_entry_points_as_inspect_has_them() -> None:
    row = {"name": "forward", "inputs": [], "kernels": [{"name": "map_add_f32"}]}
    entry = EntryReport("forward", row, {"add.Tensor": 1}, {"cpu": 1}, 16)
    values = CheckReport(("cpu:x86-64-v3",), [entry]).as_dict()
    assert values["targets"] == [{"target": "cpu:x86-64-v3"}]
    assert values["entry_points"][0]["kernels"] == [{"name": "map_add_f32"}]
    assert values["entry_points"][0]["kernel_counts"] == {"cpu": 1}
    assert "entries" not in values
