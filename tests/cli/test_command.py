"""The command line: parsing, messages, exit codes, and what is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mycc
import pytest

GOOD = """
import torch
print("hello")
model = torch.nn.Linear(3, 2)
example_inputs = (torch.ones(1, 3),)
"""


def run(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "mycc.cli", *args], capture_output=True, text=True, cwd=cwd, timeout=120
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text(GOOD)
    return tmp_path


def test_version_and_help():
    assert run("--version").stdout == f"mycc {mycc.__version__}\n"
    text = run("compile", "--help").stdout
    for option in ("--input", "--dynamic", "--target", "--threads", "--dump", "--no-verify", "--strict", "--cache-dir",
                   "--jobs", "--mode", "--dtype", "--tf32", "--set", "--json", "--out"):  # fmt: skip
        assert option in text


REFUSALS = [
    (["missing.py"], "error: there is no file 'missing.py'"),
    (
        ["model.py", "--target", "hip:gfx942"],
        "error: cannot compile for target 'hip:gfx942': mycc has no backend for it",
    ),
    (["model.py", "--target", "cpu:x86-64-v9"], "Did you mean cpu:x86-64-v"),
    (["model.py", "--dtype", "int8"], "error: unknown dtype 'int8'\n  Dtypes: f32, f16, bf16."),
    (["model.py", "--set", "schedule.fuze=1"], "Did you mean schedule.fuse?"),
    (["model.py", "--set", "schedule.fuse=maybe"], "error: option schedule.fuse is true or false, not 'maybe'"),
    (["model.py", "--threads", "0"], "error: threads has to be a number from 1, not 0"),
    (
        ["model.py", "--mode", "reduce-overhead", "--strict"],
        "error: mode 'reduce-overhead' has no effect on target cpu",
    ),
    (["model.py", "--lock", "no.lock"], "error: cannot read the lock file 'no.lock': No such file or directory"),
    (["missing.py", "--lock", "no.lock"], "error: cannot read the lock file 'no.lock'"),  # before the model is loaded
    (["model.py", "--set", "build.flags='"], 'error: cannot read option build.flags, "\'": no closing quotation'),
    (["model.py", "--out", "no/such/place.pkg"], "error: cannot write the package to 'no/such/place.pkg'"),
    (["model.py", "--input", "x"], "error: cannot read --input 'x'"),
    (["model.py", "--input", "input=f99[3]"], "unknown dtype 'f99'"),
    (["model.py", "--name", "class"], "'class' cannot be a package's name"),
    (["model.py", "--mode", "fast"], "'fast' is not one of"),
]


@pytest.mark.parametrize(("args", "message"), REFUSALS, ids=[" ".join(r[0][1:]) or "missing" for r in REFUSALS])
def test_refusals(server, folder, args, message):
    before = sorted(p.name for p in folder.iterdir())
    done = server.mycc("compile", *args, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert [p for p in sorted(p.name for p in folder.iterdir()) if p != "__pycache__"] == before


def test_a_broken_model_names_its_line(server, folder):
    (folder / "model.py").write_text("import torch\n\nmodel = torch.nn.Linear('a', 2)\n")
    done = server.mycc("compile", "model.py", cwd=folder)
    assert done.returncode == 2
    assert "model.py:3  model = torch.nn.Linear('a', 2)" in done.stderr


@pytest.mark.parametrize("command", ["run", "inspect", "verify", "bench"])
def test_light_commands_refuse_what_is_no_package(folder, command):
    (folder / "notes.txt").write_text("no package")
    done = run(command, "notes.txt", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_cache(tmp_path):
    done = run("cache", "info", "--json", "--cache-dir", str(tmp_path / "c"))
    assert json.loads(done.stdout) == {"schema": "mycc.cache/1", "path": str(tmp_path / "c"), "entries": 0, "bytes": 0}
    assert run("cache", "clear", "--cache-dir", str(tmp_path / "c")).stdout == "removed 0 objects\n"


def test_importing_mycc_imports_nothing_heavy():
    code = "import sys, mycc; mycc.CompileError; print([m for m in ('torch', 'numpy', 'typer') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("args", [["inspect", "x"], ["verify", "x"], ["cache", "info"], ["run", "x"], ["bench", "x"]])
def test_light_commands_do_not_import_torch(folder, args):
    code = (
        "import sys; sys.modules['torch'] = None\n"  # an import of torch would raise
        "from mycc.cli import app\n"
        f"sys.argv = ['mycc', *{args!r}]\n"
        "app()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert "internal error" not in done.stderr
    assert done.returncode == (0 if args[0] == "cache" else 2), done.stderr


def test_compiling_without_torch_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\nimport mycc\nmycc.compile(None, out='x.pkg')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "CompileError: compiling needs torch" in done.stderr
    assert "pip install '.[compiler]'" in done.stderr


def test_what_commands_print_as_json_is_what_the_schema_says(server, folder):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs/schemas/commands-1.json").read_text())
    (folder / "small.py").write_text(
        "import torch\nmodel = torch.nn.Linear(64, 64).eval()\nexample_inputs = (torch.randn(2, 64),)\n"
    )
    seen = []
    for words in (
        ("compile", "small.py", "--quantize", "int8"),
        ("check", "small.py", "--quantize", "int8"),
        ("check", "small.py", "--input", "input=f32[2,3]"),
        ("inspect", "small.pkg"),
        ("run", "small.pkg"),
        ("verify", "small.pkg"),
        ("verify", "small.py", "small.pkg"),
        ("bench", "small.pkg", "--kernels", "--runs", "3", "--threads", "1,2"),
        ("cache", "info"),
        ("doctor",),
        ("run", "missing.pkg"),
    ):
        found = json.loads(server.mycc(*words, "--json", cwd=folder).stdout)
        for value in found if isinstance(found, list) else [found]:
            name = value["schema"].removeprefix("mycc.").removesuffix("/1")
            jsonschema.validate(value, {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
            seen.append(name)
    assert seen == [
        *("compile", "check", "check", "inspect", "run", "verify", "verify", "bench", "bench", "cache", "doctor"),
        "error",
    ]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**value, "error": {}}, {"$ref": "#/$defs/error", "$defs": schema["$defs"]})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--temperature", "0.5"], "--temperature needs --prompt"),
        (["--chat"], "--chat needs --prompt"),
        (["--language", "en"], "--language needs --audio"),
        (["--prompt", "x", "--audio", "y.wav"], "--audio does not go with --prompt"),
        (["--prompt", "x", "--size", "batch=2"], "--size does not go with --prompt"),
        (["--audio", "y.wav", "--regex", "a"], "--regex does not go with --audio"),
    ],
)
def test_options_of_run_that_would_say_nothing(args: list[str], words: str) -> None:
    from mycc.cli import app
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["run", "x.pkg", *args])
    assert result.exit_code != 0
    assert words in f"{result.output}{result.exception}"
