"""What the command line says beside its results: help, errors as JSON, quiet runs, parts that are not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.signature import Port, Signature, Symbol, advice

from ..helpers.command_server import CommandServer

TINY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 3)

    def forward(self, x):
        return self.a(x).relu()

net = Net().eval()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "bare.py").write_text(TINY)
    (folder / "net.py").write_text(TINY + "example_inputs = (torch.randn(4, 6),)\n")
    (folder / "wrong.py").write_text(TINY + "model = net\nexample_inputs = (torch.randn(4, 5),)\n")
    return folder


def python(code: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables})


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "mycc", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Usage: mycc [OPTIONS] COMMAND" in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2]  # no line of the list is cut
    assert "First steps:" in done.stdout


@pytest.mark.parametrize(
    "command", ["compile", "check", "run", "serve", "inspect", "verify", "bench", "explain", "doctor"]
)
def test_every_command_has_examples(command: str) -> None:
    from mycc.cli import app
    from typer.testing import CliRunner

    text = CliRunner().invoke(app, [command, "--help"]).stdout
    assert "Examples:\n" in text
    assert f"  mycc {command}" in text.partition("Examples:")[2]
    assert not set("{}") & set(text.splitlines()[0])


def test_a_command_that_fails_prints_json_where_json_was_asked_for(server: CommandServer, folder: Path) -> None:
    done = server.mycc("compile", "missing.py", "--json", cwd=folder)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["schema"] == "mycc.error/1"
    assert answer["error"]["message"] == "there is no file 'missing.py'"
    assert answer["error"]["exit_code"] == 2
    assert "error: there is no file" in done.stderr
    assert server.mycc("compile", "missing.py", cwd=folder).stdout == ""
    assert server.mycc("bench", "missing.pkg", "--json", "out.json", cwd=folder).stdout == ""


def test_a_module_is_a_model_and_quiet_is_quiet(server: CommandServer, folder: Path) -> None:
    refused = server.mycc("check", "bare.py:net", cwd=folder)
    assert "bare.py has no example inputs" in refused.stderr
    done = server.mycc("compile", "net.py:net", "--out", "net.pkg", "-q", cwd=folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "(1 kernel, " in done.stdout
    facts = json.loads(server.mycc("inspect", "net.pkg", "--json", cwd=folder).stdout)
    assert facts["schema"] == "mycc.inspect/1"
    shown = server.mycc("inspect", "net.pkg", cwd=folder).stdout
    assert not [line for line in shown.splitlines() if line != line.rstrip()]


def test_examples_that_the_model_does_not_take_are_shown_with_their_sizes(server: CommandServer, folder: Path) -> None:
    done = server.mycc("check", "wrong.py", cwd=folder)
    assert "the model raises on its example inputs" in done.stdout
    assert "the example inputs are f32[4, 5]" in done.stdout


def test_a_package_for_another_machine_is_not_to_be_run_here(server: CommandServer, folder: Path) -> None:
    target = "cuda:sm_90" if not mycc_sees_gpu() else "cuda:sm_80"
    done = server.mycc("compile", "net.py:net", "--out", "gpu.pkg", "-q", "--target", target, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "no target of it runs on this machine" in done.stdout
    assert f"copy it to a machine with {target}" in done.stdout
    assert f"warning: the package is not compared with the model: {target}" in done.stderr
    failed = json.loads(server.mycc("run", "gpu.pkg", "--json", cwd=folder).stdout)["error"]
    assert failed["hint"].startswith("Compile the model with --target c")
    assert "\n" not in failed["message"]
    (folder / "gpu.pkg").unlink()
    done = server.mycc("compile", "net.py:net", "--out", "gpu.pkg", "-q", "--target", target, "--strict", cwd=folder)
    assert done.returncode == 2
    assert "is not compared with the model" in done.stderr
    assert not (folder / "gpu.pkg").exists()


def mycc_sees_gpu() -> bool:
    from mycc.runtime.devices import cuda_devices

    return bool(cuda_devices())


def test_a_missing_compiler_is_told_before_the_model_is_loaded(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('the model was loaded')\n")
    words = ("compile", str(tmp_path / "trap.py"), "--cache-dir", str(tmp_path / "cache"))
    done = python("from mycc.__main__ import main; main()", *words, PATH=str(tmp_path), CXX="")
    assert done.returncode == 2
    assert "no C++ compiler found" in done.stderr
    assert "the model was loaded" not in done.stderr


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [("typer", ["--help"], "cli"), ("jinja2", ["bench", "net.py", "--against", "eager"], "compiler")],
)
def test_a_part_that_is_not_installed_is_named(folder: Path, missing: str, words: list[str], extra: str) -> None:
    code = (
        "import sys\nclass Hidden:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        f'            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)\n'
        "sys.meta_path.insert(0, Hidden())\n"
        f"import os; os.chdir({str(folder)!r})\nfrom mycc.__main__ import main; main()"
    )
    done = python(code, *words)
    assert done.returncode == 2, done.stderr
    assert f"needs {missing}, which is not installed" in done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr


def test_calls_that_do_not_fit_say_what_helps(server: CommandServer, folder: Path) -> None:
    assert server.mycc("compile", "net.py:net", "--out", "call.pkg", "-q", cwd=folder).returncode == 0
    model = mycc.load(folder / "call.pkg")
    with pytest.raises(mycc.InputError) as error:
        model(np.zeros((5, 6), np.float32))
    assert "--dynamic 'x:0=size(1..64)'" in str(error.value)
    with pytest.raises(mycc.InputError) as error:
        model(np.zeros((4, 6)))
    assert "x.astype(numpy.float32)" in str(error.value)
    assert not model.signature.symbols
    assert advice(model.signature, [np.zeros((4, 6), np.float32)]) is None


def test_advice_is_of_the_values_not_of_a_message() -> None:
    sized = Signature("f", (Port("x", "f32", ("n", 6)),), (), (Symbol("n", 1, 64),))
    wider = "Compile the model for a larger range: --dynamic 'x:0=n(1..70)'."
    assert advice(sized, [np.zeros((70, 6), np.float32)]) == wider
    assert advice(sized, [torch.zeros(70, 6)]) == wider
    assert advice(sized, [torch.zeros(7, 6, dtype=torch.bool)]) == "Convert it: x.astype(numpy.float32)."
    assert advice(sized, [torch.zeros(7)]) is None
    assert advice(sized, [[1, 2]]) is None


def test_types_are_there_for_users() -> None:
    for name in mycc.__all__:
        assert getattr(mycc, name) is not None
    assert isinstance(mycc.Model, type)
    assert mycc.Port("x", "f32", (1,)).type == "f32[1]"
