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
    "-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
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
    commands = _commands(toolchain, version, [name for name in files if name.endswith(".cpp")])
    text = "\n".join(map(shlex.join, commands))
    key = encode_key([("what", "runtime 2"), ("compiler", toolchain.identity), ("commands", text), *files.items()])
    library = cache.get(key)
    if library is None:
        library = _build(cache, commands, files)
        cache.put(key, library)
    return library


def runtime_files() -> list[Path]:
    """The sources and headers of libmycc.so."""
    return sorted(path for path in (_RUNTIME / "src").rglob("*") if _compiled(path))


def _compiled(path: Path) -> bool:
    """Whether a file of runtime/src belongs to libmycc.so; those of its folder python belong to the wrapper."""
    return path.suffix in (".cpp", ".h") and path.parent.name != "python"


def _commands(toolchain: Toolchain, version: str, sources: list[str]) -> list[list[str]]:
    """One command, or with zig one for each source and one that links.

    zig has no headers of libc++ where -nostdlib++ is, and compiles all of libc++ at a link without it.
    """
    name = f'-DMYCC_VERSION="{version}"'
    compiling = [*toolchain.command, *_FLAGS, name, "-Iinclude", "-Isrc"]
    out = ["-shared", "-s", "-o", "libmycc.so"]
    if toolchain.family != "zig":
        return [[*compiling, *out, *sources, "-static-libstdc++", "-static-libgcc", *_LINK]]
    objects = [f"{source}.o" for source in sources]
    units = [[*compiling, "-c", source, "-o", unit] for source, unit in zip(sources, objects, strict=True)]
    return [*units, [*toolchain.command, *out, *objects, "-nostdlib++", *_LINK]]


def _build(cache: Cache, commands: list[list[str]], files: dict[str, str]) -> bytes:
    with workspace(cache.folder) as folder:
        try:
            for name, text in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            processes = Processes(folder, compiler_environment(folder))
            for command in commands:
                code, output = processes.run(command)
                if code:
                    raise CompileError(
                        "the runtime library does not compile for this target", details=output.splitlines()[:8]
                    )
            return (folder / "libmycc.so").read_bytes()
        except OSError as error:
            raise storage_error(error, cache.folder) from error
