"""Files and names that somebody made to do harm, and places that must not be written over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.compiler.api import check_out
from mycc.compiler.capture.trees import leaf_names
from mycc.compiler.package import replace, writer
from mycc.runtime import InputError, LoadError, RunError, certificate, load
from mycc.runtime.archive import Archive
from mycc.runtime.errors import CompileError
from mycc.runtime.execute import run_package
from mycc.runtime.formula import evaluate
from mycc.runtime.tensorfile import TensorEntry, encode_header
from mycc.runtime.text import printable

from .conftest import FORWARD

MakeContents = Callable[..., writer.PackageContents]
ESCAPE = "\x1b]0;title\x07\x1b[31m\x9b2J\u202eevil"


@pytest.fixture(scope="module")
def hostile(make_contents: MakeContents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose names and versions hold escape sequences."""
    entry: Any = json.loads(json.dumps(FORWARD))
    entry["name"] = f"forward{ESCAPE}"
    entry["inputs"][0]["name"] = f"x{ESCAPE}"
    entry["kernels"][0].update(name=f"kernel{ESCAPE}", sources=[f"a.py:3{ESCAPE}"])
    entry["fusions"][0]["reason"] = ESCAPE
    path = tmp_path_factory.mktemp("hostile") / "adder.pkg"
    contents = make_contents(entry_points=[entry], versions={"mycc": ESCAPE}, certificate=None, check={})
    writer.write_package(path, contents)
    return path


@pytest.mark.parametrize("options", [["--members"], ["--fusions"], ["--json"], ["--size", "none=3"]])
def test_inspect_prints_no_escape_sequences(hostile: Path, options: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "mycc.cli", "inspect", str(hostile), *options], capture_output=True)
    assert done.returncode == 0, done.stderr
    text = (done.stdout + done.stderr).decode()
    assert "title" in text
    assert printable(text) == text


def test_errors_and_the_package_itself_print_no_escape_sequences(hostile: Path) -> None:
    for command in ([str(hostile)], [str(hostile), "--run"], ["-m", "mycc.cli", "run", str(hostile)]):
        done = subprocess.run([sys.executable, *command], capture_output=True)
        text = (done.stdout + done.stderr).decode()
        assert "Traceback" not in text
        assert printable(text) == text
    with pytest.raises(LoadError) as caught:
        load(hostile)  # its code has another name
    assert printable(str(caught.value)) == str(caught.value)


def test_what_is_printable() -> None:
    assert printable("a\tb\né 漢") == "a\tb\né 漢"
    assert printable("\x1b[1m\x9b\x00\u2066\ud800") == "\\x1b[1m\\x9b\\x00\\x2066\\xd800"


def test_a_nul_ends_no_path(package: Path, make_contents: MakeContents) -> None:
    for path in (f"{package}\0.evil", Path(f"{package}\0.evil")):
        with pytest.raises(LoadError, match=r"NUL|null"):
            load(path)
        with pytest.raises(LoadError, match=r"NUL|null"):
            Archive(path)
    with pytest.raises(CompileError, match="NUL"):
        check_out(f"{package}\0.evil")


def test_names_of_files_that_are_no_unicode(package: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.pkg")
    Path(path).write_bytes(package.read_bytes())
    assert load(path).target == load(Path(path)).target == Archive(path).manifest["targets"][0]["target"]
    with pytest.raises(LoadError, match="cannot read"):
        load(path + "x")


def test_fifos_and_devices_are_not_read(package: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.npz"
    os.mkfifo(fifo)
    for read in (load, Archive):
        with pytest.raises(LoadError, match=r"cannot read .*fifo\.npz: it is not a regular file"):
            read(fifo)
        with pytest.raises(LoadError):
            read("/dev/null")
    with pytest.raises(InputError, match=r"cannot read .*fifo\.npz"):
        run_package(package, fifo)


def test_fifos_and_devices_are_not_replaced(package: Path, make_contents: MakeContents, tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to("/dev/null")
    for place in (fifo, link):
        with pytest.raises(CompileError, match="it is not a regular file"):
            writer.write_package(place, make_contents())
        with pytest.raises(CompileError, match="it is not a regular file"):
            check_out(place)
        with pytest.raises(RunError, match="it is not a regular file"):
            run_package(package, out=place)
    assert fifo.is_fifo()
    assert Path("/dev/null").is_char_device()
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["fifo", "link"]


def test_a_package_is_on_the_disk_before_it_takes_its_place(
    make_contents: MakeContents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def step(*arguments: Any, name: str = name, original: Any = original) -> None:
            steps.append(name)
            original(*arguments)

        monkeypatch.setattr(replace.os, name, step)
    writer.write_package(tmp_path / "model.pkg", make_contents())
    assert steps == ["fsync", "replace", "fsync"]


def changed_main(package: Path, out: Path, extra: bytes) -> Path:
    """The package with a `__main__.py` that ends in other bytes."""
    data = bytearray(package.read_bytes())
    member = Archive(bytes(data)).members["__main__.py"]
    end = member.offset + member.size
    data[end - len(extra) : end] = extra
    out.write_bytes(data)
    return out


def test_a_changed_main_is_refused(package: Path, tmp_path: Path) -> None:
    source = zipfile.ZipFile(package).read("__main__.py")
    path = changed_main(package, tmp_path / "adder.pkg", source[-8:-1] + b" ")
    for arguments in ([], ["--json"], ["--run"]):
        done = subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True)
        assert done.returncode == 2, done.stdout
        assert "__main__.py does not match its hash" in done.stderr
    with pytest.raises(LoadError, match=r"__main__\.py does not match its hash"):
        load(path)


def test_an_output_may_have_any_key() -> None:
    assert list(leaf_names({"dict": [["", "*"], ["a b", "*"], [3, "*"]]}, "output")) == ["output", "a_b", "output_3"]


@pytest.mark.parametrize("formula", ["", "2*", "b", "1//0", "(" * 5000, "9" * 5000, "é", "1 2"])
def test_damaged_formulas_are_said(formula: str) -> None:
    with pytest.raises(LoadError, match="a formula of the package's manifest is"):
        evaluate(formula, {})


@pytest.mark.parametrize(
    "cases",
    ["", "[", "[" * 5000, "{}x", "[1]", "[{}]", '[{"entry": "forward", "sizes": {}, "inputs": 3, "outputs": []}]'],
)
def test_damaged_certificates_are_said(cases: str) -> None:
    header = encode_header([TensorEntry("a", "F64", (1,), 0, 8)], {"format": "mycc-certificate-1", "cases": cases})
    with pytest.raises(LoadError, match="certificate cannot be read"):
        certificate.parse(header + bytes(8))


def test_a_certificate_of_something_else_is_said(package: Path) -> None:
    case = certificate.CertificateCase("forward", {"batch": 1}, (), ())
    with pytest.raises(LoadError, match="certificate does not fit it"):
        certificate.check(load(package), certificate.Certificate((case,)))


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{", b'{"w": 3}', b'{"w": {"dtype": "F32", "shape": 3, "data_offsets": []}}', b"[" * 5000,
     b'{"__metadata__": 3}'],
)  # fmt: skip
def test_a_damaged_header_of_the_weights_is_said(package: Path, header: bytes) -> None:
    from mycc.runtime.inspect import inspect_package

    data = bytearray(package.read_bytes())
    place = Archive(bytes(data)).members["weights.safetensors"].offset
    size = int.from_bytes(data[place : place + 8], "little")
    data[place + 8 : place + 8 + size] = header[:size].ljust(size)
    with pytest.raises(LoadError, match="the weights' header is damaged"):
        inspect_package(bytes(data))


def test_inputs_that_are_no_arrays_are_refused(package: Path, tmp_path: Path) -> None:
    broken = tmp_path / "in.npz"
    np.savez_compressed(broken, x=np.ones((1, 4), np.float32))
    whole = broken.read_bytes()
    lying = b"PK\3\4" + whole[4:60] + bytes(20) + whole[80:]
    for data in (whole[:-20], lying, b"PK\3\4", b"\x93NUMPY\1\0\xff\xff{", b""):
        broken.write_bytes(data)
        with pytest.raises(InputError, match="cannot read"):
            run_package(package, broken)
