from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mycc.compiler.build.elf import read_dynamic_symbols
from mycc.compiler.package import archive, replace
from mycc.compiler.package.glibc import oldest_glibc
from mycc.compiler.package.python_side import import_name
from mycc.compiler.package.writer import Completion, PackageContents, write_package
from mycc.compiler.weights.safetensors import WeightTensor, layout
from mycc.runtime import load
from mycc.runtime.archive import Archive
from mycc.runtime.errors import CompileError, LoadError
from mycc.runtime.tensorfile import parse_header
from mycc.runtime.verify import verify_package

from ..helpers.interrupts import INTERRUPTIBLE

MakeContents = Callable[..., PackageContents]


def test_the_zip_is_whole_and_its_mapped_members_are_aligned(package: Path) -> None:
    with zipfile.ZipFile(package) as file:
        assert file.testzip() is None
        assert file.namelist()[-1] == "manifest.json"
        members = {info.filename: info for info in file.infolist()}
        manifest = json.loads(file.read("manifest.json"))
        assert file.comment.decode() == f"mycc:1:{hashlib.sha256(file.read('manifest.json')).hexdigest()}"
    offsets = {name: member.offset for name, member in Archive(package).members.items()}
    for name, info in members.items():
        assert info.compress_type == zipfile.ZIP_STORED or name.startswith("src/")
        if name.endswith((".so", ".safetensors")):
            assert offsets[name] % 65536 == 0, name
    assert set(manifest["members"]) == members.keys() - {"manifest.json", "weights.safetensors"}
    assert {"__main__.py", "adder/__init__.py", "adder/__main__.py", "src/x86-64-v2/adder.c"} <= members.keys()
    assert Archive(package).check_members() == len(manifest["members"])


def test_the_manifest_says_what_is_in_it(package: Path) -> None:
    manifest = Archive(package).manifest
    (target,) = manifest["targets"]
    assert {key: target[key] for key in ("target", "isa", "library", "loader")} == {
        "target": "cpu:x86-64-v2",
        "isa": "x86-64-v2",
        "library": "lib/x86-64-v2/model.so",
        "loader": "lib/x86-64-v2/libmycc.so",
    }
    assert target["glibc"].startswith("2.")
    assert all(path == f"python/{tag}/_binding.so" for tag, path in manifest["python"].items())
    assert manifest["check"]["certificate"] == "certificate.safetensors"
    assert (manifest["format"], manifest["abi"], manifest["name"]) == (1, 5, "adder")


def test_equal_contents_give_equal_files(make_contents: MakeContents, package: Path, tmp_path: Path) -> None:
    summary = write_package(tmp_path / "again.pkg", make_contents())
    assert (tmp_path / "again.pkg").read_bytes() == package.read_bytes()
    assert summary.size == package.stat().st_size == summary.weights + summary.other
    assert os.listdir(tmp_path) == ["again.pkg"]


def test_weights_are_padded_and_have_no_holes() -> None:
    tensors = [
        WeightTensor("a", "F32", (3, 5), np.ones((3, 5), np.float32)),
        WeightTensor("b", "F16", (32,), np.ones(32, np.float16)),
        WeightTensor("c", "BOOL", (), np.array(True)),
    ]
    placed = layout(tensors)
    assert (placed.offsets, placed.size) == ((0, 64, 128), 192)
    assert len(placed.header) % 64 == 0
    entries, metadata, start = parse_header(memoryview(placed.header + bytes(placed.size)))
    assert (metadata, start) == ({"format": "mycc"}, len(placed.header))
    assert [(e.name, e.dtype, e.shape, e.begin, e.end) for e in entries] == [
        ("a", "F32", (16,), 0, 64),
        ("b", "F16", (32,), 64, 128),
        ("c", "BOOL", (64,), 128, 192),
    ]


def test_weights_are_read_by_safetensors(make_contents: MakeContents, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=size).astype(np.float32) for size in (3_000_000, 7, 0, 16, 1_048_576)]
    tensors = [WeightTensor(f"w{i}", "F32", array.shape, array) for i, array in enumerate(arrays)]
    write_package(tmp_path / "big.pkg", make_contents(weights=tensors))
    package = Archive(tmp_path / "big.pkg")
    weights = package.manifest["weights"]
    data = package.read("weights.safetensors")
    assert package.check_weights() == len(weights["sha256"]) == -(-weights["size"] // weights["block"]) == 4
    assert weights["sha256"][1] == hashlib.sha256(data[4 << 20 : 8 << 20]).hexdigest()
    loaded = safetensors.load(bytes(data))
    for i, array in enumerate(arrays):
        assert np.array_equal(loaded[f"w{i}"].reshape(-1)[: array.size], array)
    for offset, array in zip(layout(tensors).offsets, arrays, strict=True):
        begin = weights["data_offset"] + offset
        assert bytes(data[begin : begin + array.nbytes]) == array.tobytes()


def test_wrong_weights_are_refused(make_contents: MakeContents, tmp_path: Path) -> None:
    short = WeightTensor("w", "F32", (4,), np.zeros(3, np.float32))
    with pytest.raises(CompileError, match="the constant w has 12 bytes, but its type needs 16"):
        write_package(tmp_path / "x.pkg", make_contents(weights=[short]))
    with pytest.raises(CompileError, match="the constant w has the dtype C64"):
        layout([WeightTensor("w", "C64", (4,), b"")])
    with pytest.raises(CompileError, match="two constants are called w"):
        layout([WeightTensor("w", "F32", (4,), b"")] * 2)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_package(
    make_contents: MakeContents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model.pkg"
    out.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(archive.ArchiveWriter, "close", full)
    with pytest.raises(CompileError, match=r"cannot write .*model.pkg: the disk is full"):
        write_package(out, make_contents())
    assert (os.listdir(tmp_path), out.read_bytes()) == (["model.pkg"], b"old")


def test_unwritable_places_are_refused(make_contents: MakeContents, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="it is a folder"):
        write_package(tmp_path, make_contents())
    with pytest.raises(CompileError, match=r"the folder .*nowhere does not exist"):
        write_package(tmp_path / "nowhere" / "model.pkg", make_contents())


WRITE_SLOWLY = """
import sys, time
from pathlib import Path
from mycc.compiler.package.replace import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_writer_leaves_the_old_package_and_nothing_else(tmp_path: Path, sent: signal.Signals) -> None:
    out = tmp_path / "model.pkg"
    out.write_bytes(b"old")
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE + WRITE_SLOWLY, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    process.send_signal(sent)
    assert process.wait(10) != 0
    with replace.whole_file(tmp_path / "model.pkg") as file:  # also removes what a named leftover would be
        file.write(b"new")
    assert (os.listdir(tmp_path), out.read_bytes()) == (["model.pkg"], b"new")


def test_file_systems_without_unnamed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def without(path: str, flags: int, *rest: int, **named: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", without)
    out = tmp_path / "model.pkg"
    leftover = tmp_path / ".model.pkg.999999999.0.part"
    leftover.write_bytes(b"half")
    with replace.whole_file(out) as file:
        file.write(b"new")
        assert len(os.listdir(tmp_path)) == 1
    assert (os.listdir(tmp_path), out.read_bytes()) == (["model.pkg"], b"new")
    with pytest.raises(TypeError), replace.whole_file(out) as file:
        file.write(None)  # type: ignore[arg-type]
    assert (os.listdir(tmp_path), out.read_bytes()) == (["model.pkg"], b"new")


def test_a_disk_that_fails_beside_the_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells of a failed write once: what the flush beside the block hears is raised after it."""
    real, threads = os.fsync, []

    def failing(descriptor: int) -> None:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    out, ran = tmp_path / "model.pkg", []
    out.write_bytes(b"old")

    def write() -> None:
        with replace.whole_file(out) as file:
            file.write(b"new")
            with replace.flushed_beside(file):
                ran.append(True)

    with pytest.raises(CompileError, match="cannot write"):
        write()
    assert threads[0] is not threading.main_thread()
    assert (ran, os.listdir(tmp_path), out.read_bytes()) == ([True], ["model.pkg"], b"old")


def test_zip64_members_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for packages above 4 GiB: the 32-bit limit is lowered, so that all sizes take the wide form."""
    from mycc.runtime import archive as reader

    monkeypatch.setattr(archive, "_LIMIT32", 1000)
    path = tmp_path / "wide.zip"
    with open(path, "wb") as file:
        writer = archive.ArchiveWriter(file)
        writer.add("small", 3, [b"abc"])
        writer.add("large", 5000, [b"x" * 5000], 65536)
        writer.add("last", 4, [b"tail"])
        writer.close(b"mycc:1:0")
    data = path.read_bytes()
    marker = (1000).to_bytes(4, "little")
    assert data.count(marker) >= 4
    data = data.replace(marker, b"\xff\xff\xff\xff")
    path.write_bytes(data)
    package = reader.Archive(path)
    assert {name: bytes(package.read(name)[:4]) for name in package.members} == {
        "small": b"abc",
        "large": b"xxxx",
        "last": b"tail",
    }
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None


def test_glibc_is_read_from_the_version_needs(model_library: bytes, tmp_path: Path) -> None:
    library = tmp_path / "x.so"
    source = '#include <math.h>\n#include <stdio.h>\ndouble f(double x) { puts("f"); return exp(x); }\n'
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "-", "-o", library, "-lm"], input=source.encode(), check=True)
    listed = subprocess.run(["readelf", "-V", "-W", library], capture_output=True, text=True, check=True).stdout
    needs = read_dynamic_symbols(library.read_bytes()).versions
    assert ("libc.so.6", "GLIBC_2.2.5") in needs
    assert ("libm.so.6", "GLIBC_2.29") in needs
    assert all(version in listed for _, version in needs)
    assert oldest_glibc([library.read_bytes(), model_library]) == "2.29"
    assert oldest_glibc([]) == ""


def test_names_become_identifiers_that_hide_nothing() -> None:
    names = ["bert", "res-net 50", "7b", "json", "numpy", "class", "überset", ""]
    assert [import_name(name) for name in names] == [
        "bert", "res_net_50", "model_7b", "json_model", "numpy_model", "class_model", "_berset", "model",
    ]  # fmt: skip


def test_writing_keeps_no_second_copy_of_the_weights(make_contents: MakeContents, tmp_path: Path) -> None:
    import tracemalloc

    tensors = [WeightTensor(f"w{i}", "F32", (700_001,), np.ones(700_001, np.float32)) for i in range(20)]
    tracemalloc.start()
    begin = time.perf_counter()
    write_package(tmp_path / "big.pkg", make_contents(weights=tensors))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.perf_counter() - begin < 10
    assert peak < 8e6


def test_a_package_is_completed_after_it_ran(make_contents: MakeContents, tmp_path: Path) -> None:
    certificate = make_contents().certificate
    assert certificate is not None
    seen: list[Path] = []

    def complete(path: Path) -> Completion:
        seen.append(path)
        assert not (tmp_path / "model.pkg").exists()
        assert load(path).entry("double")(np.array([1, 2, 3])).tolist() == [2, 4, 6]
        assert verify_package(path).accuracy is None
        return Completion(certificate, {"error": [1e-7], "eager": [2e-7], "shapes": [{}]})

    summary = write_package(tmp_path / "model.pkg", make_contents(certificate=None, check={}), complete)
    assert len(seen) == 1
    report = verify_package(tmp_path / "model.pkg")
    assert report.ok
    assert report.accuracy is not None
    assert summary.size == (tmp_path / "model.pkg").stat().st_size
    with zipfile.ZipFile(tmp_path / "model.pkg") as file:
        assert file.testzip() is None


def test_a_package_that_fails_its_check_is_not_left_behind(make_contents: MakeContents, tmp_path: Path) -> None:
    (tmp_path / "model.pkg").write_bytes(b"old")

    def refuse(path: Path) -> Completion:
        raise CompileError("the package is not as accurate as eager")

    with pytest.raises(CompileError, match="not as accurate"):
        write_package(tmp_path / "model.pkg", make_contents(), refuse)
    assert (os.listdir(tmp_path), (tmp_path / "model.pkg").read_bytes()) == (["model.pkg"], b"old")


@pytest.mark.parametrize("position", [0, 57, archive.HUGE_PAGE - 1, 3 * archive.HUGE_PAGE])
def test_pieces_end_at_huge_pages_of_the_file(position: int) -> None:
    pages = archive.HUGE_PAGE
    random = np.random.default_rng(position)
    sizes = [1, 0, 100, pages, 2 * pages + 5, 7, pages - 12, 3 * pages, 9]
    pieces = [random.integers(0, 256, size, np.uint8).tobytes() for size in sizes]
    written = list(archive.whole_pages(pieces, position))
    assert b"".join(written) == b"".join(pieces)
    end = position
    for piece in written[:-1]:
        end += len(piece)
        assert end % pages == 0
    assert len(written) < len(pieces)


def test_sources_alone_are_deflated(tmp_path: Path) -> None:
    """unzip reads them; a deflated member elsewhere is refused, as a loader would map its bytes."""
    from mycc.runtime.archive import SOURCES

    text = b"int a;\n" * 1000
    packed = archive.deflated(text)
    assert len(packed) < len(text) / 20
    assert archive.deflated(b"ab") == b"ab"
    for folder in (SOURCES, "lib/"):
        path = tmp_path / "package.zip"
        with open(path, "wb") as file:
            writer = archive.ArchiveWriter(file)
            writer.add(f"{folder}a.cpp", len(packed), [packed], text=text)
            writer.add("last", 4, [b"tail"])
            writer.close(b"mycc:1:0")
        with zipfile.ZipFile(path) as file:
            assert file.testzip() is None
            assert file.read(f"{folder}a.cpp") == text
        if folder == SOURCES:
            assert bytes(Archive(path).read("last")) == b"tail"
        else:
            with pytest.raises(LoadError, match=r"member lib/a\.cpp is compressed"):
                Archive(path)
