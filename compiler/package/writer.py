"""Writes a package: everything is known beforehand but the hashes, which are taken while the bytes go to the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...runtime.archive import FORMAT_VERSION, MANIFEST, SOURCES, TASK
from ...runtime.native import ABI_VERSION, LIBRARY
from ...runtime.strict_json import encode
from ..machine.gpu import Device
from ..machine.targets import Target, target_folder
from ..weights.safetensors import WeightLayout, WeightTensor, layout, stream
from .archive import PAGE, ArchiveWriter, deflated
from .contract import checked_contract, contract_of
from .glibc import oldest_glibc
from .launches import target_roof
from .python_side import import_name, python_members
from .replace import flushed_beside, whole_file

__all__ = [
    "BLOCK",
    "CERTIFICATE",
    "WEIGHTS",
    "PackageContents",
    "PackageSummary",
    "alignment_of",
    "hashed_blocks",
    "write_package",
]

BLOCK = 4 << 20
WEIGHTS = "weights.safetensors"
CERTIFICATE = "certificate.safetensors"


@dataclass(frozen=True)
class PackageContents:
    """All that goes into a package.

    Attributes:
        name: of the model; the package is imported by it (`import_name` makes an identifier of it).
        entry_points: rows of the manifest.
        state: rows of the manifest, for what lives from call to call.
        weights: constants, in the order of `layout`.
        libraries: target ("cpu:x86-64-v3") -> bytes of its model.so, the target to prefer first.
        targets: the same targets, as the builder knows them.
        devices: target of a GPU -> the chip that its kernels were made for.
        images: target of a GPU -> bytes of its compiled kernels.
        device_weights: the part of the weights' data that kernels of GPUs read.
        loaders: target -> bytes of a libmycc.so for that kind of CPU.
        wrappers: interpreter tag ("cp311-x86_64") -> bytes of a `_binding` module.
        sources: path under src/ -> text.
        certificate: bytes of certificate.safetensors.
        threads: of a call when the loader names none; 0: one per core.
        launch: how a GPU's kernels are launched when the loader does not say; "": the runtime's choice.
        versions: of the compiler and its tools.
        check: the build's numerical check: "error", "eager", "shapes".
        task: what the package is for, a row of the manifest.
        files: name -> bytes of what the task needs; members in the folder task/.
        quantization: which weights are integers, and what error that adds (quantize/report.py).
        tuning: choices for kernels that were measured, and where: "machine", "threads", "targets".
        training: of a package that trains, its optimizer: "optimizer", "hyper", "groups", "parameters", "check_finite",
            "memory_budget".
    """

    name: str
    entry_points: Sequence[Mapping[str, Any]]
    weights: Sequence[WeightTensor]
    libraries: Mapping[str, bytes]
    loaders: Mapping[str, bytes]
    wrappers: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    targets: Sequence[Target] = ()
    devices: Mapping[str, Device] = field(default_factory=dict)
    images: Mapping[str, bytes] = field(default_factory=dict)
    device_weights: tuple[int, int] = (0, 0)
    certificate: bytes | None = None
    threads: int = 0
    launch: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    check: Mapping[str, Any] = field(default_factory=dict)
    tuning: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    quantization: Mapping[str, Any] | None = None
    state: Sequence[Mapping[str, Any]] = ()
    task: Mapping[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class PackageSummary:
    """What was written; sizes in bytes. `other` is everything but the weights member."""

    path: Path
    size: int
    weights: int
    other: int


@dataclass(frozen=True)
class Completion:
    """What is only known once the package runs: the bytes of its certificate, and the row "check" of its manifest."""

    certificate: bytes
    check: Mapping[str, Any]


def write_package(
    out: Path, contents: PackageContents, complete: Callable[[Path], Completion] | None = None
) -> PackageSummary:
    """Writes the package to a file beside `out` and moves it into place when it is whole.

    complete: called with the path of the whole package before it takes its place; it may load and run it. What it
    returns is added to the package. When it raises, nothing is left behind.

    Raises:
        CompileError: the file cannot be written; what was at `out` is unchanged.
    """
    if not contents.libraries or contents.libraries.keys() != contents.loaders.keys():
        raise ValueError("a package needs a library and a loader for each of its targets")
    placed = layout(contents.weights)
    with whole_file(Path(out)) as file:
        archive = ArchiveWriter(file)
        sources = {SOURCES + path: text.encode() for path, text in contents.sources.items()}
        members = _member_bytes(contents) | {name: deflated(text) for name, text in sources.items()}
        for name, data in members.items():
            archive.add(name, len(data), [data], alignment_of(name), sources.get(name))
        blocks = _write_weights(archive, contents.weights, placed)
        size = _finish(archive, contents, members, placed, blocks)
        if complete is not None:
            with flushed_beside(file):
                done = complete(Path(f"/proc/self/fd/{file.fileno()}"))
            archive.reopen()
            archive.add(CERTIFICATE, len(done.certificate), [done.certificate], PAGE)
            members[CERTIFICATE] = done.certificate
            contents = replace(contents, certificate=done.certificate, check=done.check)
            size = _finish(archive, contents, members, placed, blocks)
    return PackageSummary(Path(out), size, placed.file_size, size - placed.file_size)


def alignment_of(name: str) -> int:
    """Where a member may begin: those that are mapped into memory, at pages."""
    return PAGE if name.endswith((".so", ".safetensors", ".bin")) else 8


def _finish(
    archive: ArchiveWriter,
    contents: PackageContents,
    members: Mapping[str, bytes],
    placed: WeightLayout,
    blocks: list[str],
) -> int:
    """Writes the manifest, the last member, and the directory; returns the size of the file."""
    rows = _manifest(contents, members, placed, blocks)
    rows["directory"] = hashlib.sha256(archive.listing()).hexdigest()
    manifest = encode(rows, separators=(",", ":")).encode()
    archive.add(MANIFEST, len(manifest), [manifest])
    return archive.close(f"mycc:1:{hashlib.sha256(manifest).hexdigest()}".encode())


def _member_bytes(contents: PackageContents) -> dict[str, bytes]:
    """All members but the sources, the weights and the manifest, mapped ones first."""
    members: dict[str, bytes] = {}
    for target, library in contents.libraries.items():
        members[_library_member(target)] = library
        members[_loader_member(target)] = contents.loaders[target]
        if target in contents.images:
            members[_images_member(target)] = contents.images[target]
    for tag, wrapper in contents.wrappers.items():
        members[_wrapper_member(tag)] = wrapper
    if contents.certificate is not None:
        members[CERTIFICATE] = contents.certificate
    members.update({TASK + name: data for name, data in contents.files.items()})
    members.update(python_members(import_name(contents.name)))
    return members


def _write_weights(archive: ArchiveWriter, tensors: Sequence[WeightTensor], placed: WeightLayout) -> list[str]:
    """Streams the weights; returns the hash of each block. Hashing runs on all cores while the disk is written."""
    hashes: list[str] = []
    with hashed_blocks(stream(tensors, placed), hashes) as pieces:
        archive.add(WEIGHTS, placed.file_size, pieces, PAGE)
    return hashes


@contextmanager
def hashed_blocks(data: Iterable[memoryview], hashes: list[str]) -> Iterator[Iterator[memoryview]]:
    """The same bytes, to be written inside of the block; behind it `hashes` holds the hash of each BLOCK of them."""
    pending: list[Future[str]] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def pieces() -> Iterator[memoryview]:
            for block in _blocks(data):
                pending.append(pool.submit(_hash_block, block))
                yield from block

        yield pieces()
    hashes.extend(digest.result() for digest in pending)


def _blocks(pieces: Iterable[memoryview]) -> Iterator[list[memoryview]]:
    """The same bytes, cut at multiples of BLOCK; a block is a list of views, nothing is copied."""
    block: list[memoryview] = []
    room = BLOCK
    for piece in pieces:
        while len(piece) >= room:
            yield [*block, piece[:room]]
            piece, block, room = piece[room:], [], BLOCK
        if len(piece):
            block.append(piece)
            room -= len(piece)
    if block:
        yield block


def _hash_block(block: Sequence[memoryview]) -> str:
    digest = hashlib.sha256()
    for piece in block:
        digest.update(piece)
    return digest.hexdigest()


def _manifest(
    contents: PackageContents, members: Mapping[str, bytes], placed: WeightLayout, blocks: list[str]
) -> dict[str, Any]:
    expected = contract_of(contents.entry_points, contents.state, len(placed.header), placed.size)
    contract = checked_contract(contents.libraries, expected)
    check = dict(contents.check)
    if contents.certificate is not None:
        check["certificate"] = CERTIFICATE
    return {
        "format": FORMAT_VERSION,
        "abi": ABI_VERSION,
        "name": import_name(contents.name),
        "threads": contents.threads,
        **({"launch": contents.launch} if contents.launch else {}),
        "versions": dict(contents.versions),
        "entry_points": list(contents.entry_points),
        **({"state": list(contents.state)} if contents.state else {}),
        **({"task": dict(contents.task)} if contents.task is not None else {}),
        "targets": [_target_row(contents, target) for target in contents.libraries],
        "python": {tag: _wrapper_member(tag) for tag in contents.wrappers},
        "members": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in members.items()
        },
        "weights": {
            "member": WEIGHTS,
            "size": placed.file_size,
            "data_offset": len(placed.header),
            "block": BLOCK,
            "sha256": blocks,
            **({"device": list(contents.device_weights)} if contents.images else {}),
        },
        **({"contract": contract} if contract else {}),
        "check": check,
        **({"quantization": dict(contents.quantization)} if contents.quantization is not None else {}),
        **({"tuning": dict(contents.tuning)} if contents.tuning is not None else {}),
        **({"training": dict(contents.training)} if contents.training is not None else {}),
    }


def _target_row(contents: PackageContents, target: str) -> dict[str, Any]:
    known = {t.name: t for t in contents.targets}
    images = {"images": _images_member(target)} if target in contents.images else {}
    about: dict[str, Any] = {}
    if target in known:
        about = {"family": known[target].family, "arch": known[target].arch}
    if target in contents.devices:
        about |= target_roof(contents.devices[target])
    return {
        "target": target,
        "isa": target_folder(target),
        **about,
        **images,
        "library": _library_member(target),
        "loader": _loader_member(target),
        "glibc": oldest_glibc([contents.libraries[target], contents.loaders[target]]),
    }


def _library_member(target: str) -> str:
    return f"lib/{target_folder(target)}/model.so"


def _images_member(target: str) -> str:
    return f"lib/{target_folder(target)}/kernels.bin"


def _loader_member(target: str) -> str:
    return f"lib/{target_folder(target)}/{LIBRARY}"


def _wrapper_member(tag: str) -> str:
    return f"python/{tag}/_binding.so"
