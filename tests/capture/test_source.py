"""The forms of SOURCE, and what is said about files that give no model."""

from __future__ import annotations

import io
import os
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mycc import CompileError
from mycc.commands.sources import load_model
from mycc.compiler.capture import load_source

GOOD = """
    import torch
    model = torch.nn.Linear(3, 2)
    example_inputs = (torch.ones(1, 3),)
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def write(text, name="my_model.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return name

    return write


def test_model_and_inputs(write):
    source = load_source(write(GOOD + "    dynamic_shapes = ({0: torch.export.Dim('batch')},)\n"))
    assert (source.name, len(source.args), dict(source.kwargs)) == ("my_model", 1, {})
    assert source.dynamic_shapes is not None


def test_functions_keyword_inputs_and_modules_beside_the_file(write, capsys):
    write("WIDTH = 3", "beside.py")
    source = load_source(
        write("""
            import torch
            from beside import WIDTH
            print("loading")
            def get_model(): return torch.nn.Linear(WIDTH, 2)
            def get_example_inputs(): return (), {"input": torch.ones(1, WIDTH)}
        """)
    )
    assert isinstance(source.model, torch.nn.Linear)
    assert list(source.kwargs) == ["input"]
    assert capsys.readouterr().out == "loading\n"


def test_a_command_line_of_its_own(write, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mycc", "compile", "my_model.py", "--out", "m.pkg"])
    source = load_source(
        write("""
            import argparse, sys, torch
            parser = argparse.ArgumentParser()
            parser.add_argument("--hidden", type=int, default=4)
            hidden = parser.parse_args().hidden
            assert sys.argv == ["my_model.py"]
            def get_model(): return torch.nn.Linear(parser.parse_args().hidden, 2)
            example_inputs = (torch.ones(1, hidden),)
        """)
    )
    assert source.args[0].shape == (1, 4)
    assert sys.argv[0] == "mycc"


@pytest.mark.parametrize("form", ["my_model.py:tiny", "my_model:tiny"])
def test_factories(write, form):
    write("""
        import torch
        def tiny(): return torch.nn.Linear(3, 2), (torch.ones(1, 3),)
    """)
    sys.modules.pop("my_model", None)
    source = load_source(form)
    assert source.name == "tiny"
    assert source.args[0].shape == (1, 3)


def test_a_file_of_any_suffix(tmp_path):
    (tmp_path / "model").write_text(
        "import torch\nmodel = torch.nn.Linear(3, 2)\nexample_inputs = (torch.ones(1, 3),)\n"
    )
    assert load_source(str(tmp_path / "model")).args[0].shape == (1, 3)


def test_saved_program(tmp_path):
    program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
    torch.export.save(program, tmp_path / "linear.pt2")
    source = load_source(str(tmp_path / "linear.pt2"))
    assert isinstance(source.model, torch.export.ExportedProgram)
    assert source.args[0].shape == (1, 3)


REFUSALS = [
    ("def f(:\n", "", r"not valid Python: (.|\n)*my_model.py:1  def f\(:"),
    (
        "x = 1\ny = x / 0\n",
        "",
        r"raised while it was run: ZeroDivisionError: division by zero\n +my_model.py:2  y = x / 0",
    ),
    ("x = 1\0\n", "", r"not a Python file: it has null bytes\n +A source is a Python file"),
    ("import not_there_at_all\n", "", r"ModuleNotFoundError: No module named 'not_there_at_all'\n +my_model.py:1"),
    ("raise SystemExit(3)\n", "", r"it ended the program \(exit code 3\)"),
    ("x = 1\n", "", r"has no model: looked for `model` or `get_model\(\)`"),
    ("def build(): pass\n", "", r"has no model(.|\n)*It has: build\. Name one with file.py:NAME"),
    ("def build(): pass\n", ":other", r"my_model.py has no 'other'"),
    ("model = 3\n", "", "`model` of my_model.py is a int, not an nn.Module"),
    ("import torch\nmodel = torch.nn.Linear\n", "", "is the class Linear, not an instance"),
    (
        "import torch\nmodel = torch.nn.Linear(3, 2)\n",
        "",
        r"no example inputs: looked for `example_inputs` or `get_example",
    ),
    ("import torch\nmodel = torch.nn.ReLU()\nexample_inputs = 3\n", "", "`example_inputs` of my_model.py is a int"),
    (
        "def get_model(): raise KeyError('oh')\n",
        "",
        r"get_model\(\) of my_model.py raised: KeyError: 'oh'\n +my_model.py:1",
    ),
]


@pytest.mark.parametrize(("text", "factory", "message"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(write, text, factory, message):
    with pytest.raises(CompileError, match=message):
        load_source(write(text) + factory)


def test_files_that_are_not_there_or_not_python(write, tmp_path):
    with pytest.raises(CompileError, match=r"there is no file 'missing.py'"):
        load_source("missing.py")
    with pytest.raises(CompileError, match=r"there is no file 'missing.pt2'"):
        load_source("missing.pt2")
    with pytest.raises(CompileError, match="there is no module 'not_a_package'"):
        load_source("not_a_package.models:build")
    with pytest.raises(CompileError, match="cannot read the source 'what is this'"):
        load_source("what is this")
    (tmp_path / "binary.py").write_bytes(b"\x00\x01\x7fELF")
    with pytest.raises(CompileError, match=r"'binary.py' is not (a|valid) Python"):
        load_source("binary.py")
    (tmp_path / "broken.pt2").write_bytes(b"not a program")
    with pytest.raises(CompileError, match=r"'broken.pt2' is not a program saved by torch.export.save"):
        load_source("broken.pt2")


class Marks:
    """An object whose unpickling leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


def rewritten(path: Path, change: Callable[[str, bytes], bytes], extra: dict[str, bytes]) -> None:
    """Members of a .pt2 changed, and more of them added."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    root = next(iter(members)).split("/")[0]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, change(name, data))
        for name, data in extra.items():
            archive.writestr(f"{root}/{name}", data)


@pytest.mark.parametrize("kind", ["inputs", "constant", "library", "environment"])
def test_a_saved_program_runs_nothing_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, mark = tmp_path / "linear.pt2", tmp_path / "mark"
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.randn(1, 3),)), path)
    buffer = io.BytesIO()
    torch.save(((Marks(mark),), {}), buffer)
    extra = {"constant": {"data/constants/opaque_obj_0": b""}, "library": {"data/aotinductor/model/a.so": b""}}
    if kind in ("inputs", "environment"):
        rewritten(path, lambda name, data: buffer.getvalue() if "sample_inputs" in name else data, {})
    else:
        rewritten(path, lambda name, data: data, extra[kind])
    if kind == "environment":
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(CompileError, match="holds pickled objects or compiled code besides its tensors"):
        load_source(str(path))
    assert not mark.exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


BARE = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(2, 3)
        def forward(self, x, ids, *, scale=1.0, mask=None):
            y = x + self.table(ids)
            return y * scale if mask is None else y.masked_fill(mask, 0)
    model = Net().eval()
"""


@pytest.mark.parametrize(
    ("given", "shapes", "names"),
    [
        (["x=f32[4,3]", "ids=i64[4]"], [(4, 3), (4,)], []),
        (["1=i64[4]", "0=bf16[4,3]"], [(4, 3), (4,)], []),
        (["ids=i32[4]", "mask=bool[4,3]", "x=f32[4,3]"], [(4, 3), (4,)], ["mask"]),
    ],
)
def test_a_file_without_examples_takes_those_of_the_command(write, given, shapes, names):
    source = load_model(write(BARE), given)
    assert [tuple(value.shape) for value in source.args] == shapes
    assert list(source.kwargs) == names
    assert source.args[1].unique().tolist() == [0, 1]
    assert source.model(*source.args, **source.kwargs).shape == (4, 3)


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (["x=f32[4,3]"], r"no example input for 'ids' of forward\(x, ids, scale, mask\)", "Add --input ids=DTYPE"),
        (["x=f32[4,3]", "y=i64[4]"], r"forward\(\) has no parameter 'y'", "It has: x, ids, scale, mask"),
        (["x=f32[4;3]"], "cannot read --input 'x=f32", "It looks like"),
        (["x=f33[4,3]"], "unknown dtype 'f33'", "Dtypes: "),
    ],
)
def test_examples_of_the_command_that_are_none(write, given, message, hint):
    with pytest.raises(CompileError, match=message) as refused:
        load_model(write(BARE), given)
    assert hint in (refused.value.hint or "")


def test_a_model_that_is_any_function_takes_examples_of_the_command(write):
    source = load_model(
        write("import torch\ndef get_model(): return lambda **kw: kw['a'] + kw['b']\n"), ["a=f32[2]", "b=f32[]"]
    )
    assert list(source.kwargs) == ["a", "b"]
    assert source.model(**source.kwargs).shape == (2,)
    with pytest.raises(CompileError, match=r"forward\(\) has no parameter '0'"):
        load_model("my_model.py", ["0=f32[2]"])
