"""Packages where mycc is not installed: only the package file, Python and numpy."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from mycc.compiler.package import writer

from ..helpers.pythons import interpreter

Run = Callable[..., subprocess.CompletedProcess[str]]

OTHER_PYTHONS = ("3.12", "3.13")


@pytest.fixture(scope="session", params=[sys.version[:4], *OTHER_PYTHONS])
def python(request: pytest.FixtureRequest) -> str:
    return interpreter(request.param)


def checked(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


LOAD_ADDER = """
    sys.path.insert(0, sys.argv[1])
    import adder
    try:
        adder.load()
    except adder.LoadError as error:
        print(error)
"""
IMPORT = """
import numpy as np
sys.path.insert(0, sys.argv[1])
import adder
x, ids = np.ones((2, 4), np.float32), np.array([0, 1])
print(adder.model(x, ids)["y"].tolist(), adder.load(threads=1).threads)
try:
    adder.model(x)
except adder.InputError as error:
    print(error.message)
from adder.runtime.native import interface_name
print(interface_name())
print([name for name in sys.modules if name.startswith(("mycc", "torch"))])
"""


def test_it_is_imported_by_its_name(python_without: Run, package: Path, python: str) -> None:
    lines = checked(python_without(IMPORT, package, python=python, also=("mycc",))).splitlines()
    assert lines[0] == "[[1.0, 3.0, 5.0, 7.0], [5.0, 7.0, 9.0, 11.0]] 1"
    assert lines[1] == "forward() misses argument 'ids'"
    assert lines[2] == ("pybind11" if python == sys.executable else "ctypes")
    assert lines[3] == "[]"


def test_python_model_pkg_tells_and_runs(package: Path, python: str, tmp_path: Path) -> None:
    command = [python, "-I", str(package)]
    told = checked(subprocess.run(command, capture_output=True, text=True))
    assert "adder: compiled by mycc 0.1.0 (compiler gcc)" in told
    assert "forward(x: f32[batch, 4], ids: i64[batch]) -> y: f32[batch, 4], s: f32[batch]\n  batch: 1..64" in told
    assert "targets    cpu:x86-64-v2; glibc 2." in told
    assert "accuracy   error 1.0e-07 against float64 (eager 2.0e-07)" in told
    out = tmp_path / "out.npz"
    ran = checked(subprocess.run([*command, "--run", "--set", "batch=5", "--out", out], capture_output=True, text=True))
    assert "forward on cpu:x86-64-v2" in ran
    assert "in   x: float32[5, 4]" in ran
    assert f"outputs written to {out}" in ran
    verified = checked(subprocess.run([*command, "--verify"], capture_output=True, text=True))
    assert verified.endswith("verified on cpu:x86-64-v2\n")
    refused = subprocess.run([*command, "--run", "--set", "batch=99"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert "batch" in refused.stderr


def test_two_packages_share_one_native_library(
    python_without: Run, package: Path, make_contents: Callable[..., writer.PackageContents], tmp_path: Path
) -> None:
    other = tmp_path / "other.pkg"
    writer.write_package(other, make_contents(name="other"))
    script = """
        import numpy as np
        sys.path[:0] = sys.argv[1:]
        import adder, other
        x, ids = np.ones((1, 4), np.float32), np.array([3])
        assert np.array_equal(adder.model(x, ids)["y"], other.model(x, ids)["y"])
        maps = open("/proc/self/maps").read().splitlines()
        print(len({line.split()[4] for line in maps if "libmycc" in line}))
        assert adder.LoadError is not other.LoadError
    """
    assert checked(python_without(script, package, other, also=("mycc",))) == "1\n"


def test_nothing_is_written_to_disk(python_without: Run, package: Path, tmp_path: Path) -> None:
    run = checked(python_without(IMPORT, package, also=("mycc",), cwd=tmp_path, env={"TMPDIR": str(tmp_path)}))
    assert "[[1.0, 3.0" in run
    assert os.listdir(tmp_path) == []


def test_where_memory_files_are_forbidden(python_without: Run, package: Path, tmp_path: Path) -> None:
    script = """
        import os
        def forbidden(*_):
            raise PermissionError("memfd_create")
        os.memfd_create = forbidden
    """
    done = python_without(textwrap.dedent(script) + IMPORT, package, also=("mycc",), env={"TMPDIR": str(tmp_path)})
    assert "[[1.0, 3.0" in checked(done)
    assert os.listdir(tmp_path) == []


def test_a_package_for_another_cpu_is_refused(
    python_without: Run, make_contents: Callable[..., writer.PackageContents], tmp_path: Path
) -> None:
    contents = make_contents()
    changes = {
        "libraries": {"cpu:aarch64": contents.libraries["cpu:x86-64-v2"]},
        "loaders": {"cpu:aarch64": contents.loaders["cpu:x86-64-v2"]},
    }
    writer.write_package(tmp_path / "adder.pkg", make_contents(**changes))
    text = checked(python_without(LOAD_ADDER, tmp_path / "adder.pkg", also=("mycc",)))
    assert "has no code for this CPU (x86_64)\n  It holds cpu:aarch64; compile it for x86-64 too." in text


def test_a_damaged_library_is_refused_before_it_is_loaded(python_without: Run, package: Path, tmp_path: Path) -> None:
    from mycc.runtime.archive import Archive

    data = bytearray(package.read_bytes())
    member = Archive(bytes(data)).members["lib/x86-64-v2/libmycc.so"]
    data[member.offset + member.size // 2] ^= 1
    (tmp_path / "adder.pkg").write_bytes(data)
    text = checked(python_without(LOAD_ADDER, tmp_path / "adder.pkg", also=("mycc",)))
    assert "lib/x86-64-v2/libmycc.so does not match its hash" in text
