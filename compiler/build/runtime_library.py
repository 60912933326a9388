"""libmycc.so for a CPU that is not the builder's: compiled from the runtime's own sources, once per toolchain.

The flags are those of CMakeLists.txt, which builds the library for the builder's own CPU when mycc is installed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from ...runtime.errors import CompileError
from ..machine.targets import Target
from .cache import Cache, encode_key, storage_error
from .processes import Processes
from .toolchain import Toolchain, compiler_environment, find_toolchain
from .workspace import workspace

__all__ = ["runtime_library"]

_RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
_FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-shared", "-s", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
    "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-ffunction-sections", "-fdata-sections", "-D_GNU_SOURCE",
)  # fmt: skip
_LINK = (
    "-Wl,--no-undefined", "-Wl,--as-needed", "-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,relro", "-Wl,-z,now",
    "-lpthread", "-ldl",
)  # fmt: skip


def runtime_library(target: Target, version: str, cache_dir: Path | None = None) -> bytes:
    """The bytes of libmycc.so for a target's architecture, from the cache where it was built before.

    Raises:
        CompileError: no compiler for that architecture, or the runtime does not compile with it; a full disk.
    """
    cache = Cache(cache_dir)
    toolchain = find_toolchain(target.arch, cache)
    files = {path.relative_to(_RUNTIME).as_posix(): path.read_text() for path in runtime_files()}
    public = _RUNTIME / "include" / "mycc"
    headers = ("abi.h", "generate.h", "model.h", "tensor.h")
    files |= {f"include/mycc/{name}": (public / name).read_text() for name in headers}
    command = _command(toolchain, version, [name for name in files if name.endswith(".cpp")])
    key = encode_key(
        [("what", "runtime 1"), ("compiler", toolchain.identity), ("command", shlex.join(command)), *files.items()]
    )
    library = cache.get(key)
    if library is None:
        library = _build(cache, command, files)
        cache.put(key, library)
    return library


def runtime_files() -> list[Path]:
    """The sources and headers of libmycc.so."""
    return sorted(path for path in (_RUNTIME / "src").rglob("*") if _compiled(path))


def _compiled(path: Path) -> bool:
    """Whether a file of runtime/src belongs to libmycc.so; those of its folder python belong to the wrapper."""
    return path.suffix in (".cpp", ".h") and path.parent.name != "python"


def _command(toolchain: Toolchain, version: str, sources: list[str]) -> list[str]:
    libraries = ("-static-libstdc++", "-static-libgcc") if toolchain.family != "zig" else ("-nostdlib++",)
    name = f'-DMYCC_VERSION="{version}"'
    return [*toolchain.command, *_FLAGS, name, "-Iinclude", "-Isrc", *sources, "-o", "libmycc.so", *libraries, *_LINK]


def _build(cache: Cache, command: list[str], files: dict[str, str]) -> bytes:
    with workspace(cache.folder) as folder:
        try:
            for name, text in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            code, output = Processes(folder, compiler_environment(folder)).run(command)
            if code:
                raise CompileError(
                    "the runtime library does not compile for this target", details=output.splitlines()[:8]
                )
            return (folder / "libmycc.so").read_bytes()
        except OSError as error:
            raise storage_error(error, cache.folder) from error
