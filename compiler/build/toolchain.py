"""Finds the C++ compiler for an architecture and learns what it is.

A compiler is described by one run of it with -v. The description is kept in the cache under the compiler's path, size
and time of change, together with those of the assembler, the linker and the compiler proper; it is read once per
process.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from ...runtime.errors import CompileError
from ..machine import local_cpu
from .cache import Cache, encode_key

__all__ = ["Toolchain", "compiler_environment", "find_toolchain"]

OLDEST = {"gcc": 11, "clang": 14}
_GCC_NAMES = ("g++", *(f"g++-{v}" for v in range(16, 10, -1)))
_CLANG_NAMES = ("clang++", *(f"clang++-{v}" for v in range(22, 13, -1)))
_INSTALL = "Install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; conda: conda install gxx)"
_ZIG_GLIBC = "2.17"  # the oldest glibc that a cross build by zig asks for
# What changes the meaning of a compile from outside of its command line.
_AMBIENT = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler that makes code for `arch`.

    command: the words that run it; family: "gcc", "clang" or "zig" (a clang with its own libraries and options);
    version: as text; identity: all that is known of it (what it says of itself; path, size, time of its tools): equal
    identities make equal objects.
    """

    command: tuple[str, ...]
    family: str
    version: str
    arch: str
    identity: str

    @property
    def label(self) -> str:
        """For people and the manifest: "g++ 12.2.0"."""
        return f"{_NAMES[self.family]} {self.version}"


_NAMES = {"gcc": "g++", "clang": "clang++", "zig": "zig c++"}


def find_toolchain(arch: str, cache: Cache) -> Toolchain:
    """The compiler for an architecture ("x86_64", "aarch64"): $CXX if it makes such code, else the usual names on PATH,
    else (for another architecture than this machine's) zig.

    Raises:
        CompileError: there is none, or only too old ones; $CXX is set for this machine and cannot be used.
    """
    return _find(arch, os.environ.get("CXX", ""), os.environ.get("PATH", ""), cache.folder)


def compiler_environment(temporary: Path) -> dict[str, str]:
    """The environment to run a compiler in: messages in English, temporary files in `temporary`, nothing that adds
    include folders or outputs."""
    kept = {name: value for name, value in os.environ.items() if name not in _AMBIENT}
    return kept | {"LC_ALL": "C", "TMPDIR": str(temporary)}


@functools.lru_cache(maxsize=64)
def _find(arch: str, cxx: str, path: str, folder: Path) -> Toolchain:
    """`path` is what shutil.which() searches: a new PATH is another search."""
    cache, native = Cache(folder), arch == local_cpu.machine()
    if cxx:
        chosen = _describe(_words(cxx, path), cache, "$CXX")
        if chosen.arch == arch:
            return _require_new_enough(chosen)
        if native:
            raise CompileError(f"the compiler that CXX names, {cxx}, makes code for {chosen.arch}, not for {arch}")
    names = (*_GCC_NAMES, *_CLANG_NAMES) if native else tuple(f"{arch}-linux-gnu-{name}" for name in _GCC_NAMES)
    too_old = []
    for name in names:
        if shutil.which(name, path=path) is None:
            continue
        found = _describe((name,), cache, name)
        if found.arch == arch and _new_enough(found):
            return found
        too_old.append(f"{shutil.which(name, path=path)} is {found.label}, for {found.arch}")
    if not native and importlib.util.find_spec("ziglang") is not None:
        return _zig(arch, cache)
    raise _none_found(arch, native, too_old)


def _words(cxx: str, path: str) -> tuple[str, ...]:
    """The command that CXX holds: a program whose path may have blanks, or a program and its options as in a shell."""
    if shutil.which(cxx, path=path) is not None:
        return (cxx,)
    try:
        return tuple(shlex.split(cxx))
    except ValueError as error:
        raise CompileError(
            f"cannot read CXX, which is {cxx}: {str(error).lower()}", hint="Quote it as in a shell."
        ) from None


def _zig(arch: str, cache: Cache) -> Toolchain:
    """zig's clang, which brings the C library of every architecture with it."""
    program = (sys.executable, "-m", "ziglang")
    command = (*program, "c++", "-target", f"{arch}-linux-gnu.{_ZIG_GLIBC}")
    spec = importlib.util.find_spec("ziglang")
    stamp = _stamp(spec.origin) if spec is not None and spec.origin else ""
    key = encode_key([("toolchain", "zig"), ("program", stamp)])
    if (known := cache.get(key)) is None:
        known = _run([*program, "version"]).strip().encode()
        cache.put(key, known)
    version = known.decode()
    return Toolchain(command, "zig", version, arch, f"zig {version} {arch} glibc {_ZIG_GLIBC}")


def _none_found(arch: str, native: bool, too_old: list[str]) -> CompileError:
    wanted = f"g++ {OLDEST['gcc']} or later, or clang++ {OLDEST['clang']} or later"
    looked = "looked for $CXX, g++, g++-11 .. g++-16, clang++, clang++-14 .. clang++-22 on PATH"
    if not native:
        looked = f"looked for $CXX, {arch}-linux-gnu-g++ on PATH, and the Python package ziglang"
        package = f"g++-{arch.replace('_', '-')}-linux-gnu"
        hint = f"Install one (Debian, Ubuntu: apt install {package}; anywhere: pip install ziglang)."
        return CompileError(f"no C++ compiler for {arch} found", details=[looked, *too_old], hint=hint)
    if too_old:
        hint = f"{_INSTALL}, or name one with CXX."
        return CompileError(f"the C++ compiler is too old: mycc needs {wanted}", details=too_old, hint=hint)
    hint = f"mycc needs {wanted}. {_INSTALL}, or name one with CXX."
    return CompileError("no C++ compiler found", details=[looked], hint=hint)


def _new_enough(toolchain: Toolchain) -> bool:
    return toolchain.family == "zig" or int(toolchain.version.split(".")[0]) >= OLDEST[toolchain.family]


def _require_new_enough(toolchain: Toolchain) -> Toolchain:
    if _new_enough(toolchain):
        return toolchain
    oldest = OLDEST[toolchain.family]
    raise CompileError(
        f"the C++ compiler is too old: {toolchain.label}, mycc needs {_NAMES[toolchain.family]} {oldest} or later",
        details=[f"CXX names {shlex.join(toolchain.command)}"],
        hint=f"{_INSTALL}, or name another one with CXX.",
    )


def _describe(command: tuple[str, ...], cache: Cache, source: str) -> Toolchain:
    """What this command is, from the cache or by running it."""
    program = shutil.which(command[0]) if command else None
    if program is None:
        raise CompileError(
            f"no C++ compiler found: {source} names {shlex.join(command)!r}, which is no program on PATH",
            hint="Unset CXX to have mycc look for g++ and clang++, or give the compiler's path.",
        )
    key = encode_key([("toolchain", "2"), ("command", "\0".join(command)), ("program", _stamp(program))])
    if (known := cache.get(key)) is not None:
        record = json.loads(known)
        if all(_stamp(tool) == stamp for tool, stamp in record["tools"].items()):
            return Toolchain(**{**record["toolchain"], "command": command})
    toolchain, tools = _probe(command)
    record = {"toolchain": asdict(toolchain), "tools": tools}
    cache.put(key, json.dumps(record).encode())
    return toolchain


def _probe(command: tuple[str, ...]) -> tuple[Toolchain, dict[str, str]]:
    banner = _run([*command, "-v"])
    family, version = _family_and_version(banner, command)
    target = re.search(r"^Target: ([^\s-]+)", banner, re.MULTILINE)
    if target is None:
        raise CompileError(f"{shlex.join(command)} -v does not say for which machine it compiles", details=[banner])
    tools = _tools(command)
    identity = "\n".join([shlex.join(command), banner, *(f"{tool} {stamp}" for tool, stamp in sorted(tools.items()))])
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(target.group(1), target.group(1))
    return Toolchain(command, family, version, arch, identity), tools


def _family_and_version(banner: str, command: tuple[str, ...]) -> tuple[str, str]:
    found = re.search(r"\b(gcc|clang) version (\d+(?:\.\d+)*)", banner)
    if found is None:
        raise CompileError(
            f"{shlex.join(command)} is neither g++ nor clang++",
            details=banner.splitlines()[:5],
            hint=f"{_INSTALL}, or name one with CXX.",
        )
    return found.group(1), found.group(2)


def _tools(command: tuple[str, ...]) -> dict[str, str]:
    """path -> stamp of the programs that the compiler runs."""
    names = (_run([*command, f"-print-prog-name={tool}"]).strip() for tool in ("cc1plus", "as", "ld"))
    paths = {path for name in names if (path := shutil.which(name))}
    return {path: _stamp(path) for path in sorted(paths)}


def _stamp(path: str) -> str:
    """Names a file's content as far as its path, size and time of change do; "" when there is none."""
    try:
        real = os.path.realpath(path)
        stat = os.stat(real)
    except OSError:
        return ""
    return f"{real} {stat.st_size} {stat.st_mtime_ns}"


def _run(command: list[str]) -> str:
    """Standard output and error of a compiler that is asked about itself."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env={**os.environ, "LC_ALL": "C"}, timeout=120, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"the C++ compiler cannot be run: {shlex.join(command)}: {error}") from None
    if done.returncode != 0:
        raise CompileError(
            f"the C++ compiler does not work: {shlex.join(command)} gave exit code {done.returncode}",
            details=done.stdout.splitlines()[:10],
            hint=f"{_INSTALL}, or name another one with CXX.",
        )
    return done.stdout
