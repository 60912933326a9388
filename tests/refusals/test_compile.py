"""What `mycc compile` refuses: by its message, with exit code 2, and with nothing left behind."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import mycc
import pytest
import torch

from ..helpers.command_server import CommandServer

Write = Callable[..., Path]

LINEAR = """
import torch
model = torch.nn.Linear(4, 3).eval()
example_inputs = (torch.ones(2, 4),)
"""


def refused(server: CommandServer, source: Path, *options: str, env: dict[str, str] | None = None) -> str:
    """The message of a compile that has to be refused; checks that it leaves nothing behind."""
    folder = source.parent
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    done = server.mycc("compile", source.name, "--out", "model.pkg", *options, cwd=folder, env=env)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before
    return done.stderr[done.stderr.index("error: ") :]


# -- the user's file --------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_python(server: CommandServer, write: Write) -> None:
    text = refused(server, write("import torch\nmodel = = 3\n"))
    assert text.startswith("error: 'model.py' is not valid Python: invalid syntax")
    assert "model.py:2  model = = 3" in text
    (source := write("", "binary.py")).write_bytes(b"\x7fELF\0\0\0\1\2\3")
    text = refused(server, source)
    assert "'binary.py' is not" in text
    assert "None" not in text


def test_a_file_that_raises(server: CommandServer, write: Write) -> None:
    text = refused(server, write("import torch\n\nwidth = {}['width']\n"))
    assert "'model.py' raised while it was run: KeyError: 'width'" in text
    assert "model.py:3  width = {}['width']" in text


def test_no_model_and_no_inputs(server: CommandServer, write: Write) -> None:
    text = refused(server, write("import torch\nnet = torch.nn.Linear(4, 3)\n"))
    assert "model.py has no model: looked for `model` or `get_model()`" in text
    assert "It has: net." in text
    text = refused(server, write("import torch\nmodel = torch.nn.Linear(4, 3)\n"))
    assert "model.py has no example inputs: looked for `example_inputs` or `get_example_inputs()`" in text


def test_an_export_that_fails(server: CommandServer, write: Write) -> None:
    text = refused(
        server,
        write("""
            import torch

            class Model(torch.nn.Module):
                def forward(self, x):
                    if x.sum() > 0:
                        return x + 1
                    return x

            model = Model()
            example_inputs = (torch.ones(3),)
        """),
    )
    assert "the model cannot be exported: its control flow or a size depends on the values of a tensor" in text
    assert "model.py:6  if x.sum() > 0:" in text
    assert "torch.where" in text
    assert "  strict=True: " in text
    assert "  dynamo_graph_capture_for_export: " in text
    assert "  draft_export: it would do for all values what those of the example choose (model.py:6  if x.sum()" in text


def test_derivatives_in_forward(server: CommandServer, write: Write) -> None:
    """They compile as they stand, and traced before."""
    model = """
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx
        class Force(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 1)

            def forward(self, x):
                with torch.enable_grad():
                    x = x.detach().requires_grad_(True)
                    return -torch.autograd.grad(torch.nn.functional.silu(self.layer(x)).sum(), x)[0]
        model = Force()
        example_inputs = (torch.randn(4, 3),)
        """
    source = write(model)
    result = server.mycc("check", source.name, "--dynamic", "x:0=n(2..64)", cwd=source.parent)
    assert result.returncode == 0, result.stdout
    traced = "model = make_fx(model, tracing_mode='symbolic', _allow_non_fake_inputs=True)(*example_inputs)"
    source = write(f"{textwrap.dedent(model)}{traced}\n")
    result = server.mycc("check", source.name, "--dynamic", "arg0_1:0=n(1..64)", cwd=source.parent)
    assert result.returncode == 0, result.stdout


def test_a_wrong_shape_names_the_line(server: CommandServer, write: Write) -> None:
    text = refused(
        server,
        write("""
            import torch

            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(5, 3)

                def forward(self, x):
                    return self.layer(x)

            model = Model()
            example_inputs = (torch.ones(2, 4),)
        """),
    )
    assert "the model raises on its example inputs: RuntimeError: mat1 and mat2 shapes cannot be multiplied" in text
    assert "model.py:10  return self.layer(x)" in text


def test_unsupported_operators_all_at_once(server: CommandServer, write: Write) -> None:
    text = refused(
        server,
        write("""
            import torch

            class Model(torch.nn.Module):
                def forward(self, x):
                    y = torch._dyn_quant_pack_4bit_weight(x.to(torch.uint8), x, None, 4, 4, 4)
                    z = torch._add_relu(x, x)
                    return y, z

            model = Model()
            example_inputs = (torch.eye(4),)
        """),
    )
    assert text.startswith("error: cannot compile 2 operators")
    assert "model.py:6  y = torch._dyn_quant_pack_4bit_weight(x.to(torch.uint8), x, None, 4, 4, 4)" in text
    assert "model.py:7  z = torch._add_relu(x, x)" in text
    assert "f32[4, 4]" in text


def test_a_dynamic_dimension_that_the_model_fixes(server: CommandServer, write: Write) -> None:
    source = write("""
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                return x.view(6, -1).sum(1)

        model = Model()
        example_inputs = (torch.ones(6, 4),)
    """)
    text = refused(server, source, "--dynamic", "x:0=batch(1..64)")
    assert text.startswith("error: the model ")
    assert "batch" in text
    assert "x dimension 0" in text or "model.py:6" in text
    fixed = write("""
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                return x + torch.ones(6, 4)

        model = Model()
        example_inputs = (torch.ones(6, 4),)
    """)
    text = refused(server, fixed, "--dynamic", "x:0=batch(2..64)")
    assert "the model fixes a dimension that was asked to be dynamic" in text
    assert "batch" in text
    assert "is fixed to 6  model.py:6  return x + torch.ones(6, 4)" in text


def test_the_api_raises_the_same(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch._add_relu(x, x)  # in the error

    with pytest.raises(mycc.CompileError) as raised:
        mycc.compile(Model(), (torch.eye(3),), out=tmp_path / "model.pkg")
    assert isinstance(raised.value, mycc.Error)
    assert str(raised.value).startswith("cannot compile 1 operator")
    assert "return torch._add_relu(x, x)  # in the error" in str(raised.value)
    with pytest.raises(mycc.CompileError, match=r"has to be an nn\.Module, a function or an ExportedProgram"):
        mycc.compile(3, (torch.eye(3),), out=tmp_path / "model.pkg")
    with pytest.raises(mycc.CompileError, match="there is no directory"):
        mycc.compile(Model(), (torch.eye(3),), out=tmp_path / "no" / "model.pkg")
    assert not list(tmp_path.iterdir())


# -- the machine ------------------------------------------------------------------------------------------------------


def test_no_compiler(server: CommandServer, write: Write, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    cache = ("--cache-dir", str(empty / "cache"))
    text = refused(server, write(LINEAR), *cache, env={"PATH": str(empty), "CXX": ""})
    assert "no C++ compiler found" in text
    assert "looked for $CXX, g++" in text
    assert "apt install g++" in text
    text = refused(server, write(LINEAR), *cache, env={"CXX": "no-such-compiler"})
    assert "CXX names 'no-such-compiler', which is no program on PATH" in text or "CXX names no-such-compiler" in text
    text = refused(server, write(LINEAR), *cache, env={"CXX": "false"})
    assert "the C++ compiler does not work: false" in text
    text = refused(server, write(LINEAR), *cache, "--set", "build.flags=-no-such-flag")
    assert "-no-such-flag" in text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills(server: CommandServer, small_disk: Path) -> None:
    source = small_disk / "model.py"
    source.write_text(LINEAR)
    (small_disk / "model.pkg").write_bytes(b"the old package")
    text = refused(server, source)
    assert "the disk is full; what was there before is unchanged" in text
    assert sorted(os.listdir(small_disk)) == ["model.pkg", "model.py"]


def test_a_cache_on_a_full_disk(server: CommandServer, small_disk: Path, write: Write) -> None:
    """Objects that cannot be kept are no reason not to compile, or a reason that is told."""
    (small_disk / "filler").write_bytes(b"x" * 250_000)
    source = write(LINEAR)
    done = server.mycc("compile", source.name, "--out", "model.pkg", "--cache-dir", small_disk / "c", cwd=source.parent)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert (source.parent / "model.pkg").exists() == (done.returncode == 0)
    if done.returncode:
        assert "full" in done.stderr or "No space left" in done.stderr


def test_a_file_size_limit(server: CommandServer, write: Write) -> None:
    """As on a disk that fills: a write of the package fails, everything else has succeeded."""
    source = write(LINEAR)
    (source.parent / "model.pkg").write_bytes(b"the old package")
    code = f"""
import resource, sys
from mycc.compiler.package import replace
create = replace._create
def limited(part):  # from here on no file may be larger
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))
    return create(part)
replace._create = limited
from mycc.cli import app
sys.argv = ["mycc", "compile", "model.py", "--out", "model.pkg"]
app()
"""
    done = server.python(code, cwd=source.parent)
    assert done.returncode == 2, done.stderr
    assert "cannot write " in done.stderr
    assert "model.pkg" in done.stderr
    assert (source.parent / "model.pkg").read_bytes() == b"the old package"
    assert sorted(p.name for p in source.parent.iterdir() if p.is_file()) == ["model.pkg", "model.py"]


KILLED = """
import os, signal
import mycc, torch
from mycc.compiler.observe import Observer

class Killer(Observer):
    def stage_started(self, name):
        if name == {stage!r}:
            os.kill(os.getpid(), signal.SIGKILL)

if {stage!r} == "weights":
    from mycc import compiler
    from mycc.compiler.package import writer
    stream = writer.stream
    def half(tensors, placed):
        for i, piece in enumerate(stream(tensors, placed)):
            if i == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            yield piece
    writer.stream = half

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8))).eval()
mycc.compile(model, (torch.ones(2, 64),), out="model.pkg", progress=Killer())
"""


@pytest.mark.parametrize("stage", ["build", "package", "weights", "verify"])
def test_a_process_that_is_killed(server: CommandServer, package: Path, tmp_path: Path, stage: str) -> None:
    """The old package stays whole, and nothing lies beside it; the next compile works."""
    old = package.read_bytes()
    (tmp_path / "model.pkg").write_bytes(old)
    done = server.python(KILLED.format(stage=stage), cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert os.listdir(tmp_path) == ["model.pkg"]
    assert (tmp_path / "model.pkg").read_bytes() == old
    done = server.python(KILLED.format(stage=""), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["model.pkg"]
    assert mycc.load(tmp_path / "model.pkg")(torch.ones(2, 64)).shape == (2, 64)
