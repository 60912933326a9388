"""A wheel of the runtime alone, made from a wheel of everything: the same module `mycc` without its compiler.

It is for machines that only load packages, and is installed instead of the whole, not beside it.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

LEFT_OUT = ("mycc/compiler/", "mycc/kernels/", "mycc/templates/")
KEPT_EXTRAS = ("cli", "text", "serve")
NAME, RUNTIME = "mycc-aot", "mycc-aot-runtime"


def without_compiler(wheel: Path, out: Path) -> Path:
    """Writes the wheel of the runtime beside a wheel of everything, and returns its path."""
    before, after = (name.replace("-", "_") for name in (NAME, RUNTIME))
    result = out / wheel.name.replace(before, after, 1)
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(LEFT_OUT) and not name.endswith(("/", "/RECORD")):
                files[name.replace(f"{before}-", f"{after}-", 1)] = archive.read(name)
    metadata = next(name for name in files if name.endswith(".dist-info/METADATA"))
    files[metadata] = runtime_metadata(files[metadata].decode()).encode()
    entries = metadata.replace("METADATA", "entry_points.txt")
    files[entries] = b"[console_scripts]\nmycc = mycc.__main__:main\n"
    write(result, files)
    return result


def with_manual(wheel: Path, pages: dict[str, str]) -> None:
    """Adds manual pages to a wheel, in its place: an environment that installs it has them in share/man/man1."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith(("/", "/RECORD"))}
    data = next(name for name in files if name.endswith(".dist-info/METADATA")).split(".dist-info")[0] + ".data"
    write(wheel, files | {f"{data}/data/share/man/man1/{name}": text.encode() for name, text in pages.items()})


def write(wheel: Path, files: dict[str, bytes]) -> None:
    """A wheel of these files, with its RECORD. The same files make the same bytes."""
    metadata = next(name for name in files if name.endswith(".dist-info/METADATA"))
    own = metadata.replace("METADATA", "RECORD")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in {**files, own: record(files, own)}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(info, data)


def runtime_metadata(text: str) -> str:
    """METADATA with the runtime's name, and only the extras that work without the compiler."""
    lines = []
    for line in text.splitlines():
        extra = line.rpartition("extra ==")[2].strip(" '\"") if "extra ==" in line else None
        if line.startswith("Provides-Extra:"):
            extra = line.partition(":")[2].strip()
        if extra is None or extra in KEPT_EXTRAS:
            lines.append(f"Name: {RUNTIME}" if line == f"Name: {NAME}" else line)
    return "\n".join(lines) + "\n"


def record(files: dict[str, bytes], own: str) -> bytes:
    """RECORD: each file with its SHA-256 and size, in a wheel's spelling."""
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    return ("\n".join([*rows, f"{own},,"]) + "\n").encode()
