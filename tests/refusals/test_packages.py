"""Packages that are truncated, damaged, of another version or for another machine: refused before their code runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.archive import Archive

from ..helpers.command_server import CommandServer
from .conftest import rewritten

ARGUMENTS = np.zeros((2, 5), np.int64), np.ones((5, 8), np.float32)


def refused(server: CommandServer, path: Path, *args: str) -> str:
    """The message of a package that cannot be loaded, which is the same from the command and from Python."""
    done = server.mycc(*(args or ("run",)), path)
    assert done.returncode == 2, done.stdout
    with pytest.raises(mycc.LoadError) as raised:
        mycc.load(path, check="full")
    assert done.stderr.startswith("error: ")
    return str(raised.value)


def test_truncated(server: CommandServer, package: Path, tmp_path: Path) -> None:
    data, path = package.read_bytes(), tmp_path / "cut.pkg"
    for size in (0, 1, 100, len(data) // 2, len(data) - 1000, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(mycc.LoadError, match=r"not a whole mycc package|is empty"):
            mycc.load(path)
    assert "not a whole mycc package" in refused(server, path)


@pytest.mark.parametrize(
    "ending", ["model.so", "libmycc.so", "_binding.so", "manifest.json", "certificate.safetensors"]
)
def test_a_flipped_bit(server: CommandServer, package: Path, tmp_path: Path, ending: str) -> None:
    archive, path = Archive(package), tmp_path / "flipped.pkg"
    (name,) = (name for name in archive.members if name.endswith(ending))
    member = archive.members[name]
    for place in (0, member.size // 3, member.size - 1):
        data = bytearray(package.read_bytes())
        data[member.offset + place] ^= 4
        path.write_bytes(data)
        with pytest.raises(mycc.LoadError, match="does not match its hash"):
            mycc.load(path)
    text = refused(server, path)
    assert name in text
    assert "does not match its hash" in text


def test_a_flipped_bit_in_the_weights(server: CommandServer, package: Path, tmp_path: Path) -> None:
    """Found by `mycc verify` and by load(check="full"); a quick load does not read all weights."""
    member = Archive(package).members["weights.safetensors"]
    data, path = bytearray(package.read_bytes()), tmp_path / "flipped.pkg"
    data[member.offset + member.size - 200] ^= 1
    path.write_bytes(data)
    assert "weights.safetensors" in refused(server, path, "verify")
    mycc.load(path, check="quick")


def test_an_unknown_version(server: CommandServer, package: Path, tmp_path: Path) -> None:
    newer = rewritten(package, tmp_path / "newer.pkg", lambda manifest: manifest.update(format=2), version=2)
    text = refused(server, newer)
    assert "version" in text
    assert "2" in text
    other = rewritten(package, tmp_path / "abi.pkg", lambda manifest: manifest.update(abi=9))
    assert "9" in refused(server, other)


def test_another_machine(server: CommandServer, package: Path, tmp_path: Path) -> None:
    def for_arm(manifest: dict[str, Any]) -> None:
        manifest["targets"][0].update(target="cpu:aarch64", isa="aarch64")

    def for_v9(manifest: dict[str, Any]) -> None:
        manifest["targets"][0].update(target="cpu:x86-64-v9", isa="x86-64-v9")

    text = refused(server, rewritten(package, tmp_path / "arm.pkg", for_arm))
    assert "cpu:aarch64" in text
    assert "this CPU" in text
    assert "cpu:x86-64-v9" in refused(server, rewritten(package, tmp_path / "v9.pkg", for_v9))
    with pytest.raises(mycc.LoadError, match="has no target cpu:x86-64-v9; it holds cpu:"):
        mycc.load(package, target="cpu:x86-64-v9")


def test_no_package_at_all(server: CommandServer, tmp_path: Path) -> None:
    text = tmp_path / "text.pkg"
    text.write_text("hello\n" * 100)
    assert "not a whole mycc package" in refused(server, text)
    assert "No such file" in refused(server, tmp_path / "missing.pkg")
    torch.save({"a": torch.ones(3)}, tmp_path / "weights.pt")  # a zip file of another kind
    assert "weights.pt is a state_dict saved by torch.save" in refused(server, tmp_path / "weights.pt")
    with pytest.raises(mycc.LoadError, match="from a path or from bytes, not from a int"):
        mycc.load(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("give", [bytes, bytearray, memoryview])
def test_a_rewritten_package_is_whole(package: Path, tmp_path: Path, give: Callable[[bytes], Any]) -> None:
    """The tests above refuse what they change, not how they write it."""
    copy = rewritten(package, tmp_path / "copy.pkg", lambda manifest: None)
    assert np.array_equal(mycc.load(give(copy.read_bytes()))(*ARGUMENTS), mycc.load(package)(*ARGUMENTS))
