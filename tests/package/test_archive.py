from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path

import pytest
from mycc.runtime.archive import Archive
from mycc.runtime.errors import LoadError
from mycc.runtime.inspect import inspect_package


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]


def check_all(data: bytes) -> None:
    archive = Archive(data)
    archive.check_members()
    archive.check_weights()


def replaced(data: bytes, manifest: bytes, other: bytes) -> bytes:
    """The package with another manifest of the same size, and its hash and checksum."""
    before, after = (hashlib.sha256(text).hexdigest().encode() for text in (manifest, other))
    old, new = (zlib.crc32(text).to_bytes(4, "little") for text in (manifest, other))
    return data.replace(manifest, other).replace(before, after).replace(old, new)


def test_bytes_and_paths_are_the_same(package: Path) -> None:
    assert Archive(package).members == Archive(package.read_bytes()).members
    assert Archive(str(package)).manifest == Archive(memoryview(package.read_bytes())).manifest


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_package_is_refused(package: Path, tmp_path: Path, keep: float) -> None:
    path = tmp_path / "cut.pkg"
    data = package.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(LoadError, match=r"cut\.pkg (is not a whole mycc package|is empty)") as caught:
        Archive(path)
    assert "copy or build it again" in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"cannot read .*nothing\.pkg: No such file"):
        Archive(tmp_path / "nothing.pkg")
    with pytest.raises(LoadError, match="the package in memory is not a whole mycc package: there is no zip directory"):
        Archive(b"hello" * 100)
    with pytest.raises(LoadError, match="has the package format 23; this mycc knows version 1"):
        Archive(b"PK\5\6" + bytes(16) + b"\x0a\0mycc:23:ab")
    with pytest.raises(LoadError, match="is a zip file, but not a mycc package"):
        Archive(b"PK\5\6" + bytes(18))


def test_every_flip_outside_the_weights_is_found(package: Path) -> None:
    data = package.read_bytes()
    whole = Archive(data)
    end = data.rindex(b"PK\5\6")
    start = int.from_bytes(data[end + 16 : end + 20], "little")
    positions = list(range(start, len(data)))  # the zip directory
    for name, member in whole.members.items():
        positions += range(member.offset - 4, member.offset + 4) if member.size else ()
        local = data.rindex(b"PK\3\4", 0, member.offset)
        positions += range(local, local + 30 + len(name))
        if name != "weights.safetensors":
            positions += [member.offset + member.size // 2, member.offset + member.size - 1]
    for position in positions[::3]:
        with pytest.raises(LoadError):
            check_all(flipped(data, position))


def test_a_flip_in_the_weights_is_found_by_the_block_hashes(package: Path) -> None:
    data = package.read_bytes()
    member = Archive(data).members["weights.safetensors"]
    archive = Archive(flipped(data, member.offset + member.size - 1))
    archive.check_members()
    with pytest.raises(LoadError, match=r"block 0 of weights.safetensors \(bytes 0 to \d+\) does not match its hash"):
        archive.check_weights()


def test_a_flip_in_a_library_is_named(package: Path) -> None:
    data = package.read_bytes()
    member = Archive(data).members["lib/x86-64-v2/model.so"]
    with pytest.raises(LoadError, match=r"lib/x86-64-v2/model\.so does not match its hash"):
        Archive(flipped(data, member.offset + 100)).check_members()


def test_a_newer_format_is_refused(package: Path) -> None:
    data = package.read_bytes()
    member = Archive(data).members["manifest.json"]
    text = data[member.offset : member.offset + member.size]
    newer = text.replace(b'"format":1', b'"format":7')
    data = replaced(data, text, newer)
    with pytest.raises(LoadError, match="has the package format 7; this mycc knows version 1") as caught:
        inspect_package(data)
    assert "compile the model again" in str(caught.value)


def test_an_unlisted_member_is_refused(package: Path) -> None:
    data = package.read_bytes()
    member = Archive(data).members["manifest.json"]
    text = data[member.offset : member.offset + member.size]
    manifest = json.loads(text)
    entry = manifest["members"].pop("certificate.safetensors")
    shorter = json.dumps(manifest, separators=(",", ":")).encode()
    shorter = shorter + b" " * (len(text) - len(shorter))
    data = replaced(data, text, shorter)
    assert entry["size"] > 0
    with pytest.raises(LoadError, match=r"certificate\.safetensors is not listed in manifest\.json"):
        Archive(data).check_members()
