"""`mycc verify SOURCE FILE --bisect`: a fault that is put into one operator is found in the kernel that holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.api import compile_entries
from mycc.compiler.graph import passes
from mycc.compiler.ir import ops
from mycc.compiler.options import CompileOptions
from mycc.compiler.verify.command import ModelReport, verify_model

from ..helpers.command_server import CommandServer
from ..helpers.scripts import load_script

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 8)

    def forward(self, x):
        a = nn.functional.silu(self.up(x))
        b = self.norm(a)
        return self.down(b).tanh() + 1

torch.manual_seed(0)
model = Model().eval()
example_inputs = (torch.randn(5, 16),)
dynamic_shapes = {"x": {0: torch.export.Dim("rows", min=1, max=64)}}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(SOURCE)
    return tmp_path / "model.py"


def load_source(path: Path) -> Any:
    return load_script(path)


def check(source: Path, package: Path, bisect: Path | None) -> ModelReport:
    module = load_source(source)
    entries = compile_entries(module.model, module.example_inputs, None, getattr(module, "dynamic_shapes", None))
    return verify_model(entries, package, CompileOptions(), None, bisect)


def build(source: Path, out: Path) -> Path:
    module = load_source(source)
    shapes = module.dynamic_shapes
    return mycc.compile(module.model, module.example_inputs, out=out, dynamic_shapes=shapes, verify=False)


def break_operator(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The operator's C++ is off by 1 % from now on."""
    row = ops.OPS[name]
    wrong = replace(row.cpp_spelling, pattern=f"({row.cpp_spelling.pattern} * 1.01f)")
    monkeypatch.setitem(ops.OPS._rows, name, replace(row, cpp_spelling=wrong))


@pytest.mark.parametrize(("operator", "line", "kernel"), [("silu", 11, 0), ("rsqrt", 12, 1), ("tanh", 13, 2)])
def test_the_kernel_of_a_wrong_operator_is_found(
    operator: str,
    line: int,
    kernel: int,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: CommandServer,
) -> None:
    with monkeypatch.context() as patch:
        break_operator(patch, operator)
        package = build(source, tmp_path / "wrong.pkg")
    report = check(source, package, tmp_path / "repro")
    assert not report.ok
    (result,) = report.results
    finding = result.finding
    assert finding is not None
    assert (finding.stage, finding.number) == ("kernel", kernel)
    assert any(f"model.py:{line}" in where for where in finding.lines)
    assert 1e-3 < finding.error < 2e-2
    # the reproducer is a model of its own, with the same value
    module = load_source(tmp_path / "repro" / "repro.py")
    value = module.model(*module.example_inputs)
    assert finding.values is not None
    torch.testing.assert_close(value, finding.values[finding.node])
    assert server.mycc("check", "repro.py", cwd=tmp_path / "repro").returncode == 0


RESIDUAL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 8)
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        a = nn.functional.silu(self.up(x))
        b = self.two(self.one(a).relu()) + a
        return self.down(b).tanh()

torch.manual_seed(0)
model = Model().eval()
example_inputs = (torch.randn(5, 16),)
dynamic_shapes = {"x": {0: torch.export.Dim("rows", min=1, max=64)}}
"""


def test_a_value_that_another_is_stored_over_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "model.py"
    source.write_text(RESIDUAL)
    with monkeypatch.context() as patch:
        break_operator(patch, "silu")
        package = build(source, tmp_path / "wrong.pkg")
    (result,) = check(source, package, tmp_path / "repro").results
    assert result.finding is not None
    assert (result.finding.number, result.finding.unseen) == (0, ())


def test_a_wrong_pass_is_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = build(source, tmp_path / "m.pkg")

    def wrong(work: Any, context: Any) -> dict[str, int]:
        for node in work.graph.nodes:
            if "silu" in str(node.target):
                node.target = torch.ops.aten.sigmoid.default
        return {"wrong": 1}

    rows = [replace(row, run=wrong) if row.name == "fold-padding" else row for row in passes.PASSES]
    module = load_source(source)
    entries = compile_entries(module.model, module.example_inputs, None, module.dynamic_shapes)
    with monkeypatch.context() as patch:
        patch.setattr(passes, "PASSES", tuple(rows))
        package = build(source, tmp_path / "wrong.pkg")
        report = verify_model(entries, package, CompileOptions(), None, tmp_path / "repro")
    (result,) = report.results
    assert result.finding is not None
    assert (result.finding.stage, result.finding.name) == ("graph", "fold-padding")


def test_a_right_package(server: CommandServer, source: Path, tmp_path: Path) -> None:
    package = build(source, tmp_path / "right.pkg")
    done = server.mycc("verify", source.name, package, "--bisect", cwd=source.parent)
    assert done.returncode == 0, done.stderr
    assert "against float64" in done.stdout
    assert not (source.parent / "repro").exists()


def test_a_package_of_another_model_is_refused(server: CommandServer, source: Path, tmp_path: Path) -> None:
    out = mycc.compile(torch.nn.Linear(16, 8).eval(), torch.randn(5, 16), out=tmp_path / "other.pkg", verify=False)
    done = server.mycc("verify", source.name, out, "--bisect", cwd=source.parent)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_other_weights_are_no_fault_of_a_kernel(source: Path, tmp_path: Path) -> None:
    package = build(source, tmp_path / "seeded.pkg")
    source.write_text(SOURCE.replace("torch.manual_seed(0)", "torch.manual_seed(1)"))
    (result,) = check(source, package, tmp_path / "repro").results
    assert "none of the model's weights is in the package" in result.problems[-1]
    assert result.finding is None
