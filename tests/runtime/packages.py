"""Writes small packages by hand: a second opinion on the format, with room for mistakes."""

from __future__ import annotations

import copy
import hashlib
import json
import platform
import struct
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
ISA = {"x86_64": "x86-64", "aarch64": "aarch64"}[platform.machine()]
WEIGHTS = np.array([0.5, -1.0, 4.0, 8.0], np.float32)


def compile_program(out: Path, *flags: str) -> bytes:
    """model.so of program.c."""
    source = Path(__file__).with_name("program.c")
    include = ROOT / "runtime" / "include"
    options = ["-std=c11", "-O1", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{include}", *flags]
    subprocess.run(["gcc", *options, str(source), "-o", str(out)], check=True)
    return out.read_bytes()


def symbol(name: str, low: int, high: int, source: int = 0, dim: int = 0, scale: int = 1, offset: int = 0) -> Any:
    return {"name": name, "min": low, "max": high, "input": source, "dim": dim, "scale": scale, "offset": offset}


def entry(name: str, inputs: list[Any], outputs: list[Any], symbols: list[Any], kernels: int = 1) -> dict[str, Any]:
    """A row of entry_points; inputs and outputs are (name, dtype, shape)."""
    ports = [[{"name": n, "dtype": d, "shape": s} for n, d, s in rows] for rows in (inputs, outputs)]
    return {
        "name": name,
        "inputs": ports[0],
        "outputs": ports[1],
        "symbols": symbols,
        "in_tree": {"tuple": [{"tuple": ["*"] * len(inputs)}, {"dict": []}]},
        "out_tree": {"tuple": ["*"] * len(outputs)},
        "kernels": [{"name": f"kernel_{i}", "kind": "map", "ops": [], "sources": []} for i in range(kernels)],
        "fusions": [],
        "memory": {"buffers": 0, "arena": 0, "live": 0},
    }


ENTRIES = [
    entry("affine", [("x", "f32", ["batch", 4])], [("y", "f32", ["batch", 4])], [symbol("batch", 1, 64)]),
    entry("cover", [("n", "i64", ["n"])], [("a", "i32", ["n"]), ("b", "i32", ["n"])], [symbol("n", 0, 1 << 40)]),
    entry(
        "chain",
        [("x", "f32", ["8*blocks + 1"])],
        [("y", "f32", ["8*blocks + 1"])],
        [symbol("blocks", 1, 4000, scale=8, offset=1)],
        kernels=4,
    ),
    entry("lookup", [("indices", "i64", ["n"])], [("y", "f32", ["n"])], [symbol("n", 1, 100)]),
    entry(
        "pair",
        [("a", "f32", ["batch", "seq"]), ("b", "f32", ["seq", "2*batch + 1"])],
        [("y", "f32", ["batch"])],
        [symbol("batch", 1, 8), symbol("seq", 2, 2, dim=1)],
    ),
    entry("halves", [("x", "bf16", [2, 3])], [("y", "bf16", [2, 3])], []),
    entry("copy", [("x", "f32", [2, 3, 4, 5])], [("y", "f32", [2, 3, 4, 5])], []),
    entry("interleave", [("n", "i64", ["n"])], [("y", "i64", ["n"])], [symbol("n", 1, 1 << 20)]),
    entry("copies", [("x", "f32", ["n", 3])], [("y", "f32", ["n", 3])], [symbol("n", 0, 1 << 62)]),
    entry("flags", [("x", "bool", ["n"])], [("y", "u8", ["n"])], [symbol("n", 1, 100)]),
    entry("cube", [("x", "f32", ["n"])], [("y", "f32", ["n"])], [symbol("n", 1, 1 << 40)]),
    entry("power", [("x", "f32", ["n"])], [("y", "u8", ["n**4"])], [symbol("n", 1, 1 << 40)]),
]
NAMES = {row["name"]: index for index, row in enumerate(ENTRIES)}


@dataclass
class Draft:
    """A package before it is written: everything may be changed."""

    library: bytes
    isas: list[str] = field(default_factory=lambda: [ISA])
    changes: dict[str, Any] = field(default_factory=dict)  # of the manifest
    extra: dict[str, bytes] = field(default_factory=dict)  # members
    version: str = "1"
    exact: bool = True  # the manifest has the hash of the directory
    weights: np.ndarray[Any, Any] = field(default_factory=lambda: WEIGHTS)
    block: int = 64

    def header(self) -> bytes:
        """What stands before the data in the weights."""
        weights = weights_file(self.weights)
        return weights[: 8 + int.from_bytes(weights[:8], "little")]

    def members(self) -> dict[str, bytes]:
        """All but the manifest."""
        code = {f"lib/{isa}/model.so": self.library for isa in self.isas} | self.extra
        return code | {"weights.safetensors": weights_file(self.weights)}

    def manifest(self) -> dict[str, Any]:
        members = self.members()
        weights = members.pop("weights.safetensors")
        blocks = [weights[i : i + self.block] for i in range(0, len(weights), self.block)]
        manifest = {
            "format": 1,
            "abi": 2,
            "name": "handmade",
            "versions": {"mycc": "0.1.0"},
            "entry_points": copy.deepcopy(ENTRIES),
            "targets": [
                {"target": f"cpu:{isa}", "isa": isa, "library": f"lib/{isa}/model.so", "loader": "", "glibc": "2.17"}
                for isa in self.isas
            ],
            "python": {},
            "members": {n: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in members.items()},
            "weights": {
                "member": "weights.safetensors",
                "size": len(weights),
                "data_offset": len(self.header()),
                "block": self.block,
                "sha256": [hashlib.sha256(block).hexdigest() for block in blocks],
            },
            "check": {"error": [4.1e-07], "eager": [5.0e-07], "shapes": []},
        } | self.changes
        if self.exact:
            manifest["directory"] = hashlib.sha256(listing(self.members())).hexdigest()
        return manifest

    def build(self, manifest: dict[str, Any] | None = None) -> bytes:
        """The package; with a manifest that has been changed, if one is given."""
        text = json.dumps(self.manifest() if manifest is None else manifest).encode()
        return with_manifest(self.members(), text, self.version)


def with_manifest(members: dict[str, bytes], text: bytes, version: str = "1") -> bytes:
    """A package of these members and a manifest, with its hash."""
    return archive(members | {"manifest.json": text}, f"mycc:{version}:{hashlib.sha256(text).hexdigest()}".encode())


def weights_file(values: np.ndarray[Any, Any]) -> bytes:
    size = -(-values.nbytes // 64) * 64
    row = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "mycc"}, "w": row}).encode()
    header += b" " * (-(len(header) + 8) % 64)
    return struct.pack("<Q", len(header)) + header + values.tobytes().ljust(size, b"\0")


def listing(members: dict[str, bytes]) -> bytes:
    """The directory of a zip of these members."""
    return archive(members, None)


def archive(members: dict[str, bytes], comment: bytes | None, alignment: int = 65536) -> bytes:
    """A stored zip; members that are mapped start at multiples of `alignment`. No comment: its directory alone."""
    out, directory = bytearray(), bytearray()
    for name, data in members.items():
        raw, start = name.encode(), len(out)
        padding = -(start + 30 + len(raw)) % (alignment if name.endswith((".so", ".safetensors")) else 1)
        if 0 < padding < 4:
            out += bytes(padding)
            start, padding = len(out), 0
        extra = struct.pack("<HH", 0x796D, padding - 4) + bytes(padding - 4) if padding else b""
        common = struct.pack("<5H3I", 20, 0, 0, 0, 33, zlib.crc32(data), len(data), len(data))
        out += b"PK\3\4" + common + struct.pack("<HH", len(raw), len(extra)) + raw + extra + data
        directory += b"PK\1\2" + struct.pack("<H", 0x032D) + common
        directory += struct.pack("<5H2I", len(raw), 0, 0, 0, 0, 0o100644 << 16, start) + raw
    if comment is None:
        return bytes(directory)
    end = struct.pack("<4H2IH", 0, 0, len(members), len(members), len(directory), len(out), len(comment))
    return bytes(out + directory + b"PK\5\6" + end + comment)


def data_ranges(package: bytes) -> dict[str, range]:
    """Where each member's bytes lie."""
    import io
    import zipfile

    found = {}
    for info in zipfile.ZipFile(io.BytesIO(package)).infolist():
        name_size, extra_size = struct.unpack_from("<HH", package, info.header_offset + 26)
        start = info.header_offset + 30 + name_size + extra_size
        found[info.filename] = range(start, start + info.file_size)
    return found
